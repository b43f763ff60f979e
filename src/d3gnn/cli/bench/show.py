"""Print results as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output, with numbers aligned to the right."""
    has_names = any(columns)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=has_names)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 and not has_names else "right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)

"""Render sections as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from d3gnn.bench.report.section import FOLD, Cell, Loss, Section, Table


def to_markdown(title: str, sections: Sequence[Section], pictures: str) -> str:
    """The report as Markdown; `pictures` is the folder of the charts."""
    lines = [f"# {escaped(title)}", ""]
    for section in sections:
        lines += _section(section, pictures)
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    r"""Escape text, so that Markdown shows it unchanged.

    >>> print(escaped("a|b <i> *c* dgl_full"))
    a\|b \<i\> \*c\* dgl_full
    """
    return re.sub(r"[\\`*\[\]<>|&~$]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))


def _section(section: Section, pictures: str) -> Iterator[str]:
    yield from (f"{'#' * section.level} {escaped(section.title)}", "")
    for paragraph in section.text:
        yield from (escaped(paragraph), "")
    if section.table is not None:
        yield from (*_table(section.table), "")
    for picture in section.pictures:
        yield from (f"![{escaped(picture.description)}]({pictures}/{picture.name}.svg)", "")
    if section.commands:
        ticks = max(re.findall("`+", "\n".join(section.commands)), default="", key=len)
        fence = "`" * max(3, len(ticks) + 1)
        block = (f"{fence}bash", *section.commands, fence, "")
        if len(section.commands) > FOLD:
            summary = f"<summary>Reproduce ({len(section.commands)} commands)</summary>"
            yield from ("<details>", summary, "", *block, "</details>", "")
        else:
            yield from ("Reproduce with:", "", *block)


def _table(table: Table) -> Iterator[str]:
    yield _row([escaped(title) for title in table.titles])
    yield _row([":---" if place < table.names else "---:" for place in range(len(table.titles))])
    for row in table.rows:
        yield _row([_cell(cell) for cell in row])


def _cell(cell: Cell) -> str:
    text = escaped(str(cell))
    return f"**{text}**" if isinstance(cell, Loss) else text


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

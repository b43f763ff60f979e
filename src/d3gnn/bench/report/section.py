"""The structure of a report, independent of Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Sections with more commands than this show them collapsed.
FOLD = 3


@dataclass(frozen=True)
class Loss:
    """A highlighted cell: d3gnn was slower."""

    text: str

    def __str__(self) -> str:
        return self.text


Cell = str | Loss


@dataclass(frozen=True)
class Table:
    """Column titles and rows of formatted text; the first `names` columns are text, the others numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.titles):
                raise ValueError(f"{len(row)} cells under {len(self.titles)} titles")


@dataclass(frozen=True)
class Picture:
    """An SVG chart: the file name without suffix, the SVG text, and a description (alt text)."""

    name: str
    svg: str
    description: str


@dataclass(frozen=True)
class Section:
    """A section of a report; one of level 3 is a subsection of the last one of level 2."""

    title: str
    text: Sequence[str] = ()
    table: Table | None = None
    pictures: Sequence[Picture] = ()
    #: Commands that reproduce the results.
    commands: Sequence[str] = ()
    level: int = 2

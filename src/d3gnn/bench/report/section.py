"""What a report is made of, before it is Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: With more commands than this, a section shows them only to those who ask.
FOLD = 3


@dataclass(frozen=True)
class Loss:
    """A cell that says d3gnn was slower; a reader should not have to look for it."""

    text: str

    def __str__(self) -> str:
        return self.text


Cell = str | Loss


@dataclass(frozen=True)
class Table:
    """Column titles and rows of ready-made text; the first `names` columns are words, the others numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.titles):
                raise ValueError(f"{len(row)} cells under {len(self.titles)} titles")


@dataclass(frozen=True)
class Picture:
    """An SVG file's name without its ending, its text, and what it shows in words."""

    name: str
    svg: str
    shows: str


@dataclass(frozen=True)
class Section:
    """One part of a report, from top to bottom; one of level 3 belongs to the one of level 2 before it."""

    title: str
    text: Sequence[str] = ()
    table: Table | None = None
    pictures: Sequence[Picture] = ()
    #: What to run to measure this again.
    commands: Sequence[str] = ()
    level: int = 2

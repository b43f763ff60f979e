"""Windows as options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from d3gnn.kernel.windows import Window


class ClockName(StrEnum):
    """The clock of windows."""

    batch = "batch"
    event = "event"


WINDOW = "NAME[:SETTINGS]"
WindowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--window",
        help="Collect changes before sending them: tumbling:0.5 (seconds), session:0.2,max_delay=1, adaptive "
        "or count:20. Give it twice for separate windows at edges and vertices; none is no window.",
        metavar=WINDOW,
        show_default=False,
        rich_help_panel="Running",
    ),
]
ClockOption = Annotated[
    ClockName,
    typer.Option(
        help="Clock of windows: the time at which a batch starts, or the newest event time (see --ts-unit).",
        rich_help_panel="Running",
    ),
]


def parse_windows(texts: Sequence[str] | None) -> tuple[Window | None, Window | None]:
    """The windows of Edge and of Vertex operators: one for both, or one for each."""
    given = [parse_window(text) for text in texts or []]
    if len(given) > 2:
        raise ValueError(f"--window is given {len(given)} times; give it once, or twice (edges, vertices)")
    return (given[0], given[-1]) if given else (None, None)


def parse_window(text: str) -> Window | None:
    """A window from its name and settings, which may be positional.

    >>> parse_window("session:0.2,max_delay=1")
    Session(gap=0.2, max_delay=1.0)
    """
    from d3gnn.kernel.windows import make_window, windows

    name, _, rest = text.partition(":")
    if name == "none":
        if rest:
            raise ValueError(f"--window {text}: none has no settings")
        return None
    kind = {window.name: window for window in windows()}.get(name)
    if kind is None:
        known = ", ".join(window.name for window in windows())
        raise ValueError(
            f"--window {text}: unknown window {name!r}; choose {known} or none, as in tumbling:0.5"
        )
    names = [field.name for field in fields(kind) if not field.kw_only]
    settings: dict[str, float | int] = {}
    named = False
    for place, item in enumerate(rest.split(",") if rest else []):
        setting, equals, value = item.rpartition("=")
        if not equals and place >= len(names):
            raise ValueError(f"--window {text}: {name} takes only {len(names)} settings: {', '.join(names)}")
        if named and not equals:
            raise ValueError(f"--window {text}: {value!r} has no name, but follows a setting that has one")
        named = bool(equals)
        setting = setting.strip() if equals else names[place]
        if setting in settings:
            raise ValueError(f"--window {text}: {setting} is set twice")
        if setting not in {field.name for field in fields(kind)}:
            raise ValueError(f"--window {text}: {name} has no setting {setting!r}; it has {', '.join(names)}")
        try:
            settings[setting] = int(value) if setting == "n" else float(value)
        except ValueError:
            what = "whole number, as in count:20" if setting == "n" else f"number, as in {name}:0.5"
            raise ValueError(f"--window {text}: {setting} must be a {what}, not {value!r}") from None
    try:
        return make_window(name, **settings)
    except TypeError:
        missing = next(n for n in names if n not in settings)
        example = 20 if missing == "n" else 0.5
        raise ValueError(f"--window {text}: {name} needs its {missing}, as in {name}:{example}") from None
    except ValueError as error:
        raise ValueError(f"--window {text}: {error}") from None

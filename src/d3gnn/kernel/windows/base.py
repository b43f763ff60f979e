"""What a window is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar

from d3gnn.kernel.compiled import inlined
from d3gnn.registry import is_skeleton, register
from d3gnn.types import Ints32

_KNOWN: dict[str, type[Window]] = {}

#: Microseconds in a second: settings are in seconds, clocks in microseconds.
SECOND = 1_000_000
#: The longest setting, in seconds: 31 years.
LONGEST = 1_000_000_000


@inlined
def no_look_ahead(vertex: int, sketch: Ints32) -> None:
    """For windows that look at nothing but a vertex's own row."""


@dataclass(frozen=True)
class Window:
    """How long a changed vertex is pending before it is sent on, so that further changes are merged with it.

    Each vertex has a deadline of its own, at most `longest` seconds after its first change. Windows delay
    sending, never state. Deadlines are rounded to multiples of `coalesce` seconds, so that many vertices are
    due in the same batch; 0 does not round.

    A new window is one subclass with a `name`, its settings, and the compiled step `due_at`.
    """

    coalesce: float = field(default=0.01, kw_only=True, repr=False)
    name: ClassVar[str]
    #: Compiled with `inlined`: `due_at(vertex, touches, total, now, numbers, sketch)` returns when a vertex
    #: is due, in microseconds, if nothing else changes it; `now` or earlier for at once. It was touched
    #: `touches` times in this batch and `total` times since it became pending.
    due_at: ClassVar[Any]
    #: Compiled with `inlined`: `look_ahead(vertex, sketch)` prefetches what `due_at` will read.
    look_ahead: ClassVar[Any] = staticmethod(no_look_ahead)
    #: Whether `due_at` uses the sketch of rates (`d3gnn.kernel.windows.sketch`).
    keeps_rates: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not is_skeleton(cls):
            register(_KNOWN, cls.name, cls, "window")

    @property
    def numbers(self) -> tuple[float, ...]:
        """The settings as `due_at` reads them: times in microseconds."""
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """The longest time, in seconds, that a vertex is pending."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        for setting in fields(self):  # plain numbers, so that they can be saved
            value = getattr(self, setting.name)
            if setting.type == "int" and isinstance(value, Integral):
                object.__setattr__(self, setting.name, int(value))
            elif setting.type != "int" and isinstance(value, Real):
                object.__setattr__(self, setting.name, float(value))
        coalesce: Any = self.coalesce
        if not isinstance(coalesce, Real) or not 0 <= float(coalesce) <= LONGEST:
            name = type(self).__name__
            raise ValueError(f"{name}(coalesce={coalesce!r}): must be from 0 to {LONGEST:,} seconds")

    def to_dict(self) -> dict[str, Any]:
        """Name and settings, as plain values."""
        return {"name": self.name, **asdict(self)}


#: One window for all operators, or one for Edge and one for Vertex operators.
Windows = Window | tuple[Window | None, Window | None] | None


def pair_of(window: Windows) -> tuple[Window | None, Window | None]:
    """The windows of Edge and of Vertex operators."""
    pair: tuple[Any, ...] = window if isinstance(window, tuple) else (window, window)
    if len(pair) != 2 or not all(isinstance(each, Window | None) for each in pair):
        raise ValueError(
            f"window={window!r}: must be a window of d3gnn.windows such as Tumbling(0.5), a pair of windows "
            "(for Edge and for Vertex operators), or None"
        )
    reduce, forward = pair
    return reduce, forward


def make_window(name: str, **settings: Any) -> Window:
    """A window by name, with its settings.

    >>> from d3gnn.windows import Tumbling
    >>> make_window("tumbling", interval=0.5)
    Tumbling(interval=0.5)
    """
    if name not in _KNOWN:
        raise ValueError(f"unknown window {name!r}: choose one of {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name](**settings)


def windows() -> list[type[Window]]:
    """All registered windows."""
    return [_KNOWN[name] for name in sorted(_KNOWN)]


def microseconds(seconds: float) -> int:
    """Seconds in microseconds. Rounded: 2.01 times a million is a little less than 2010000."""
    return round(seconds * SECOND)


def check_seconds(window: str, **settings: Any) -> None:
    """Raise ValueError for settings that are no durations."""
    for name, seconds in settings.items():
        if not isinstance(seconds, Real) or not 1 / SECOND <= float(seconds) <= LONGEST:
            bounds = f"must be a number of seconds from {1 / SECOND:f} to {LONGEST:,}"
            raise ValueError(f"{window}({name}={seconds!r}): {bounds}")

"""What a window is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar

_KNOWN: dict[str, type[Window]] = {}

#: Microseconds in a second: settings are in seconds, clocks in microseconds.
SECOND = 1_000_000
#: Seconds beyond which nobody waits: 31 years.
LONGEST = 1_000_000_000


@dataclass(frozen=True)
class Window:
    """Says how long what has changed at a vertex waits for more to change, before it is sent on as one.

    Each vertex waits on its own. Nothing waits longer than `longest`. Windows delay sending, never state.
    Deadlines lie on multiples of `coalesce` seconds, so that many are due at once; 0 leaves them as they are.
    """

    coalesce: float = field(default=0.01, kw_only=True, repr=False)
    name: ClassVar[str]
    #: By which compiled code knows it.
    code: ClassVar[int]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        _KNOWN[cls.name] = cls

    @property
    def numbers(self) -> tuple[float, ...]:
        """What compiled code is told: settings, times in microseconds."""
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """Seconds that anything waits at most."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        for setting in fields(self):  # plain numbers, so that they can be written down
            value = getattr(self, setting.name)
            if setting.type == "int" and isinstance(value, Integral):
                object.__setattr__(self, setting.name, int(value))
            elif setting.type != "int" and isinstance(value, Real):
                object.__setattr__(self, setting.name, float(value))
        coalesce: Any = self.coalesce
        if not isinstance(coalesce, Real) or not 0 <= float(coalesce) <= LONGEST:
            name = type(self).__name__
            raise ValueError(f"{name}(coalesce={coalesce!r}): 0 seconds or more, up to {LONGEST:,}, please")

    def to_dict(self) -> dict[str, Any]:
        """Name and settings, as plain values."""
        return {"name": self.name, **asdict(self)}


#: One for all operators, or one for Edge and one for Vertex operators.
Windows = Window | tuple[Window | None, Window | None] | None


def pair_of(window: Windows) -> tuple[Window | None, Window | None]:
    """The windows of Edge and of Vertex operators."""
    pair: tuple[Any, ...] = window if isinstance(window, tuple) else (window, window)
    if len(pair) != 2 or not all(isinstance(each, Window | None) for each in pair):
        raise ValueError(
            f"window={window!r}: a window of d3gnn.windows, as Tumbling(0.5), a pair of them, or None, please"
        )
    reduce, forward = pair
    return reduce, forward


def make_window(name: str, **settings: Any) -> Window:
    """A window by name, with its settings.

    >>> make_window("tumbling", interval=0.5)
    Tumbling(interval=0.5)
    """
    if name not in _KNOWN:
        raise ValueError(f"no window {name!r}; known are {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name](**settings)


def windows() -> list[type[Window]]:
    """All kinds of windows there are."""
    return [_KNOWN[name] for name in sorted(_KNOWN)]


def microseconds(seconds: float) -> int:
    """Rounded, not cut off: 2.01 times a million is a little less than 2010000."""
    return round(seconds * SECOND)


def check_seconds(window: str, **settings: Any) -> None:
    """Refuse times that are no times."""
    for name, seconds in settings.items():
        if not isinstance(seconds, Real) or not 1 / SECOND <= float(seconds) <= LONGEST:
            above = f"a number of seconds above 0, at least {1 / SECOND:f} and at most {LONGEST:,}"
            raise ValueError(f"{window}({name}={seconds!r}): {above}, please")

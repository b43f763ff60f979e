"""What a window is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

_KNOWN: dict[str, type[Window]] = {}

#: Microseconds in a second: settings are in seconds, clocks in microseconds.
SECOND = 1_000_000


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
        if not 0 <= self.coalesce < float("inf"):
            raise ValueError(f"{type(self).__name__}(coalesce={self.coalesce}): 0 seconds or more, please")

    def to_dict(self) -> dict[str, Any]:
        """Name and settings, as plain values."""
        return {"name": self.name, **asdict(self)}


#: One for all operators, or one for Edge and one for Vertex operators.
Windows = Window | tuple[Window | None, Window | None] | None


def pair_of(window: Windows) -> tuple[Window | None, Window | None]:
    """The windows of Edge and of Vertex operators."""
    return window if isinstance(window, tuple) else (window, window)


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


def check_seconds(window: str, **settings: float | None) -> None:
    """Refuse times that are no times."""
    for name, seconds in settings.items():
        if seconds is not None and not 0 < seconds < float("inf"):
            raise ValueError(f"{window}({name}={seconds}): more than 0 seconds, please")

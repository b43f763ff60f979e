"""Help texts from docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def help_of(command: Callable[..., Any]) -> str:
    """The docstring with one line for each paragraph, which terminals of any width can wrap."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(_one_line(paragraph) for paragraph in paragraphs)


def _one_line(paragraph: str) -> str:
    first, *rest = paragraph.split("\n")
    return " ".join([first.rstrip(), *(line.strip() for line in rest)])

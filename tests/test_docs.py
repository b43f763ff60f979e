"""Every Python block in the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->[ \t]*\n\s*)?^```python[^\n]*\n(?P<code>.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def documents() -> list[Path]:
    return [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]


def blocks(text: str) -> list[tuple[int, str]]:
    """Line number and code of each block that is to run."""
    return [
        (text.count("\n", 0, match.start("code")) + 1, match["code"])
        for match in BLOCK.finditer(text)
        if match["skip"] is None
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_a_document_run_in_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks(path.read_text(encoding="utf-8")):
        # Blank lines in front make a traceback point at the line of the document.
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)


def test_a_block_after_a_not_run_comment_is_left_out() -> None:
    text = (
        "Text\n\n```python\na = 1\n```\n\n<!-- not run: needs a cluster -->\n\n```python\nb = 2\n```\n\n"
        "```sh\nls\n```\n\n```python\nc = 3\n```\n"
    )
    assert blocks(text) == [(4, "a = 1\n"), (18, "c = 3\n")]

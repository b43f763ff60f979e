"""Every Python block in the documentation runs, and prints what the text block behind it shows."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->[ \t]*\n\s*)?"
    r"^```python[^\n]*\n(?P<code>.*?)^```[ \t]*$"
    r"(\n\s*^```text[^\n]*\n(?P<output>.*?)^```[ \t]*$)?",
    re.MULTILINE | re.DOTALL,
)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A Python block that is run, its line in the document, and the output that the document shows."""

    line: int
    code: str
    output: str | None = None


def documents() -> list[Path]:
    return [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]


def blocks(text: str) -> list[Block]:
    """The blocks of a document that are to run; those that need Spark run in tests/spark/test_readme.py."""
    return [
        Block(text.count("\n", 0, match.start("code")) + 1, match["code"], match["output"])
        for match in BLOCK.finditer(text)
        if match["skip"] is None
    ]


def run(path: Path, text: str) -> None:
    """Run the blocks of a document in order, in one namespace, and compare what they print."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code, expected in blocks(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Blank lines in front make a traceback point at the line of the document.
            exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)
        if expected is not None:
            checker, example = doctest.OutputChecker(), doctest.Example(code, expected)
            if not checker.check_output(expected, printed.getvalue(), _FLAGS):
                difference = checker.output_difference(example, printed.getvalue(), _FLAGS)
                pytest.fail(f"{path.name}, line {line} prints something else:\n{difference}", pytrace=False)


@pytest.fixture(autouse=True)
def registries_are_restored() -> Iterator[None]:
    """What a document registers does not meet what other tests register."""
    from d3gnn.kernel.aggregators import base as aggregators
    from d3gnn.kernel.partitioners import base as partitioners
    from d3gnn.kernel.windows import base as windows
    from d3gnn.nn import aggregation, heads, layer

    registries: list[dict[str, Any]] = [
        aggregators._KNOWN, partitioners._REGISTRY, windows._KNOWN, layer._TYPES, heads._TYPES,
        aggregation._REGISTERED,
    ]  # fmt: skip
    before = [dict(registry) for registry in registries]
    for registry in registries[:-1]:  # classes of other tests may have the names that a document uses
        for name, kind in list(registry.items()):
            if not kind.__module__.startswith("d3gnn."):
                del registry[name]
    yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_a_document_run_in_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(path, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_that_run_here_need_no_spark(path: Path) -> None:
    """A block that starts or stops a session would meet the session of the tests on Spark."""
    for line, code, _ in blocks(path.read_text(encoding="utf-8")):
        assert not re.search(r"\bspark\b|\bsession\(", code), f"{path.name}, line {line}"


def test_a_block_after_a_not_run_comment_is_left_out() -> None:
    text = (
        "Text\n\n```python\na = 1\n```\n\n<!-- not run: needs a cluster -->\n\n```python\nb = 2\n```\n\n"
        "```sh\nls\n```\n\n```python\nc = 3\n```\n"
    )
    assert blocks(text) == [Block(4, "a = 1\n"), Block(18, "c = 3\n")]


def test_only_a_text_block_directly_behind_is_output() -> None:
    text = (
        "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nprint(2)\n```\n\nIt prints:\n\n"
        "```text\n2\n```\n"
    )
    assert blocks(text) == [Block(2, "print(1)\n", "1\n"), Block(10, "print(2)\n")]


def test_output_is_compared_up_to_white_space_and_ellipses() -> None:
    shown = "```python\nprint('one  two', 3.14159)\n```\n```text\n{}\n```\n"
    for output in ("one  two 3.14159", "one two\n3.14...", "... 3.14159"):
        run(Path("some.md"), shown.format(output))
    for output in ("one two 3.15", "one two", "one two 3.14159 four"):
        with pytest.raises(pytest.fail.Exception, match=r"some\.md, line 2 prints something else"):
            run(Path("some.md"), shown.format(output))

"""Settings of a wrong type get one line that names them."""

from __future__ import annotations

from typing import Any

import pytest

from d3gnn import GraphSchema, LocalEngine, StreamingGNN
from d3gnn.nn import GraphSAGE

WHOLE = "must be an integer of at least 1"


@pytest.mark.parametrize("given", ["2", 2.0, True, 0])
@pytest.mark.parametrize("name", ["parts", "threads"])
def test_of_a_local_engine(name: str, given: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}={given!r}: {WHOLE}$"):
        LocalEngine(GraphSAGE(2, 4, 1), **{name: given})


@pytest.mark.parametrize("given", ["2", 2.0, True, 0])
@pytest.mark.parametrize("name", ["parts", "tasks"])
def test_of_a_pipeline(name: str, given: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}={given!r}: {WHOLE}$"):
        StreamingGNN(GraphSAGE(2, 4, 1), **{name: given})


def test_of_others() -> None:
    schema: Any = GraphSchema
    with pytest.raises(ValueError, match=f"^label_width='1': {WHOLE}$"):
        schema(label_width="1")
    with pytest.raises(ValueError, match=r"^min_change='0.1': must be 0"):
        LocalEngine(GraphSAGE(2, 4, 1), min_change="0.1")  # type: ignore[arg-type]

"""The steps of a model that is written as a torch module of its own, found by tracing its `forward`."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx, nn

#: Activations as functions or methods, by name: the module, and the settings behind their input.
_ACTIVATIONS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "relu": (nn.ReLU, ()),
    "tanh": (nn.Tanh, ()),
    "sigmoid": (nn.Sigmoid, ()),
    "silu": (nn.SiLU, ()),
    "selu": (nn.SELU, ()),
    "elu": (nn.ELU, ("alpha",)),
    "celu": (nn.CELU, ("alpha",)),
    "gelu": (nn.GELU, ("approximate",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "hardtanh": (nn.Hardtanh, ("min_val", "max_val")),
    "softplus": (nn.Softplus, ("beta", "threshold")),
    "softmax": (nn.Softmax, ("dim",)),
    "log_softmax": (nn.LogSoftmax, ("dim",)),
}
_DROPOUT = ("dropout", "alpha_dropout", "feature_alpha_dropout")
_NOTHING = ("contiguous", "float", "detach")
_FUNCTIONS = ", ".join([*_ACTIVATIONS, *_DROPOUT])


class UnsupportedModelError(TypeError):
    """A model, or a part of one, that cannot be converted."""


class Step(NamedTuple):
    """A module that a model applies to the rows of all vertices."""

    name: str
    module: Any
    #: Whether it reads the edges, and a weight or features of each.
    reads_edges: bool
    reads_weights: bool = False


def traced_steps(model: nn.Module, edge_weight: bool, weighted: Collection[str]) -> list[Step]:
    """The modules and functions that `forward` applies one after the other, in inference.

    `weighted` are the classes of layers that take weights of edges only where `edge_weight` is set.
    """
    tracer = _Tracer()
    try:
        graph = tracer.trace(copy.deepcopy(model).eval())
    except UnsupportedModelError:
        raise
    except Exception as error:
        where = _line(traceback.extract_tb(error.__traceback__))
        raise UnsupportedModelError(
            f"{where or 'model'}: forward() of {type(model).__name__} cannot be traced "
            f"({_first_line(error)}). {_ADVICE}"
        ) from error
    return _Chain(model, edge_weight, weighted).steps(graph)


_ADVICE = (
    "Supported is a chain of layers, x = self.conv(x, edge_index), with modules and activations that work on "
    "each row alone. Write another model as PyG's Sequential, or as layers of d3gnn.nn"
)


class _Tracer(fx.Tracer):
    """Takes layers of PyG, and whatever else passes messages, as a whole."""

    record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        passes_messages = hasattr(m, "propagate") and hasattr(m, "message")
        of_pyg = type(m).__module__.startswith("torch_geometric.")
        return passes_messages or of_pyg or super().is_leaf_module(m, module_qualified_name)


class _Chain:
    """Walks a traced graph, in which each node must work on the result of the one before."""

    def __init__(self, model: nn.Module, edge_weight: bool, weighted: Collection[str]) -> None:
        self._model, self._edge_weight, self._weighted = model, edge_weight, weighted
        #: What each node is: `data`, `edges`, `weights`, `rows`.
        self._kinds: dict[fx.Node, str] = {}
        self._required: set[fx.Node] = set()
        self._rows: fx.Node | None = None

    def steps(self, graph: fx.Graph) -> list[Step]:
        nodes = list(graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        self._name_inputs(inputs)
        found = []
        for node in nodes:
            if node.op == "output":
                self._check_rows(node, node.args[0])
            elif node not in self._kinds and not self._is_field(node):
                step = self._step(node)
                self._kinds[node], self._rows = "rows", node
                if step is not None:
                    found.append(step)
        return found

    def _name_inputs(self, inputs: list[fx.Node]) -> None:
        if len(inputs) == 1:
            self._kinds[inputs[0]] = "data"  # of which forward takes x, edge_index and so on
            return
        for i, node in enumerate(inputs):
            self._kinds[node] = ("rows", "edges")[i] if i < 2 else "weights"
            if i > 1 and not node.args:  # it has no default
                self._required.add(node)
        self._rows = inputs[0] if inputs else None

    def _is_field(self, node: fx.Node) -> bool:
        """Whether this is a field of the input, `data.x` and so on."""
        if node.target is not getattr or self._kinds.get(node.args[0]) != "data":  # type: ignore[arg-type]
            return False
        name = str(node.args[1])
        self._kinds[node] = {"x": "rows", "edge_index": "edges", "adj_t": "edges"}.get(name, "weights")
        if name == "x":
            self._rows = node
        elif self._kinds[node] == "weights":
            self._required.add(node)
        return True

    def _step(self, node: fx.Node) -> Step | None:
        if node.op == "call_module":
            return self._module(node)
        if node.op in ("call_function", "call_method"):
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            return self._function(node, str(name).rstrip("_"))
        raise self._error(node, f"{node.target} is read as a tensor")

    def _module(self, node: fx.Node) -> Step:
        name = str(node.target)
        module = self._model.get_submodule(name)
        given = [*node.args, *node.kwargs.values()]
        self._check_rows(node, given[0] if given else None)
        kinds = [self._kinds.get(each, "") for each in given[1:] if isinstance(each, fx.Node)]
        if not set(kinds) <= {"edges", "weights"}:
            raise self._error(node, f"self.{name} reads the rows of several steps")
        wants = type(module).__name__ in self._weighted
        needed = [each for each in given[1:] if isinstance(each, fx.Node) and each in self._required]
        if wants and needed and not self._edge_weight:
            raise self._error(node, f"self.{name} reads {needed[0].name}, so use from_pyg(edge_weight=True)")
        return Step(name, module, "edges" in kinds, "weights" in kinds)

    def _function(self, node: fx.Node, name: str) -> Step | None:
        rest = [*node.args[1:], *node.kwargs.values()]
        if any(isinstance(each, fx.Node) for each in rest):
            raise self._error(node, f"{name}() reads the results of several steps")
        self._check_rows(node, node.args[0] if node.args else None)
        if name in _DROPOUT:
            if node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True):
                raise self._error(node, f"{name}() also drops in inference: give it training=self.training")
            return None
        if name in _NOTHING:
            return None
        if name not in _ACTIVATIONS:
            raise self._error(node, f"{name}() is not supported; supported functions are {_FUNCTIONS}")
        make, settings = _ACTIVATIONS[name]
        values = dict(zip(settings, node.args[1:], strict=False))
        values |= {key: node.kwargs[key] for key in settings if key in node.kwargs}
        if "dim" in settings and values.get("dim") not in (1, -1):
            raise self._error(node, f"{name}() over dim={values.get('dim')} reads several rows; use dim=-1")
        return Step(node.name, make(**values), reads_edges=False)

    def _check_rows(self, node: fx.Node, given: object) -> None:
        """Check that a node works on the rows that the step before it returned."""
        if given is not self._rows or self._rows is None:
            what = "returns" if node.op == "output" else f"{node.name} reads"
            raise self._error(node, f"{what} something else than the rows of the step before")

    def _error(self, node: fx.Node, what: str) -> UnsupportedModelError:
        where = _last_line(node.stack_trace or "") or f"forward() of {type(self._model).__name__}"
        return UnsupportedModelError(f"{where}: {what}. {_ADVICE}")


_LIBRARIES = (str(Path(torch.__file__).parent), "torch_geometric")


def _line(frames: traceback.StackSummary) -> str:
    """The last line of the user's own code, as `model.py, line 7 (x = torch.cat(...))`."""
    own = [frame for frame in frames if not any(library in frame.filename for library in _LIBRARIES)]
    own = [frame for frame in own if Path(frame.filename) != Path(__file__)]
    if not own:
        return ""
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno} ({own[-1].line})"


def _last_line(stack: str) -> str:
    """The same, from the text of a stack."""
    frames = []
    lines = stack.splitlines()
    for place, code in zip(lines, [*lines[1:], ""], strict=True):
        if place.strip().startswith('File "'):
            file, line = place.strip().removeprefix('File "').split('", line ')
            number = int(line.partition(",")[0])
            frames.append(traceback.FrameSummary(file, number, "", line=code.strip()))
    return _line(traceback.StackSummary.from_list(frames))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

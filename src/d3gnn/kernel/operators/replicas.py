"""Compiled steps of masters and replicas: where vertices are placed."""

from __future__ import annotations

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.edge_table import NEXT_ROW, NEXT_SLOT
from d3gnn.kernel.operators.decisions import N_REPLICAS, N_SOURCES, Decisions, add_entry
from d3gnn.kernel.operators.graph_state import Graph
from d3gnn.kernel.partitioners.base import (
    FIRST_REPLICA,
    IS_SOURCE,
    MASTER_PART,
    MASTER_ROW,
    NEXT_REPLICA,
    REPLICA_COUNT,
    REPLICA_PART,
    REPLICA_SLOT,
)


@inlined
def place_master(v: int, part: int, graph: Graph, out: Decisions) -> None:
    """Place the master of a new vertex. Its part also gets a replica, which always receives values."""
    graph.placement.vertex[v, MASTER_PART] = part
    graph.placement.vertex[v, MASTER_ROW] = graph.parts[NEXT_ROW, part]
    graph.parts[NEXT_ROW, part] += 1
    graph.placement.replica[replica_of(v, part, graph, out), IS_SOURCE] = 1


@inlined
def replica_of(v: int, part: int, graph: Graph, out: Decisions) -> int:
    """The replica of v in a part; created if there is none."""
    vertex, replica = graph.placement.vertex, graph.placement.replica
    at = vertex[v, FIRST_REPLICA] - 1
    while at >= 0:
        if replica[at, REPLICA_PART] == part:
            return at  # type: ignore[no-any-return]
        at = replica[at, NEXT_REPLICA] - 1
    at = graph.counters[REPLICA_COUNT]
    graph.counters[REPLICA_COUNT] += 1
    replica[at, REPLICA_PART] = part
    replica[at, REPLICA_SLOT] = graph.parts[NEXT_SLOT, part]
    replica[at, NEXT_REPLICA] = vertex[v, FIRST_REPLICA]
    replica[at, IS_SOURCE] = 0
    vertex[v, FIRST_REPLICA] = at + 1
    graph.parts[NEXT_SLOT, part] += 1
    out.replicas.vertex[add_entry(out.counts, N_REPLICAS)] = v
    return at  # type: ignore[no-any-return]


@inlined
def make_source(replica: int, v: int, graph: Graph, out: Decisions) -> None:
    if graph.placement.replica[replica, IS_SOURCE] == 0:
        graph.placement.replica[replica, IS_SOURCE] = 1
        n = add_entry(out.counts, N_SOURCES)
        out.sources.replica[n], out.sources.vertex[n] = replica, v

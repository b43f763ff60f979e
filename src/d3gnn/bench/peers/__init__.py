"""What people use instead: other ways to have the same embeddings after every batch of a changing graph."""

from __future__ import annotations

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers.base import Peer
from d3gnn.bench.peers.dgl import DglFull, DglInfluenced
from d3gnn.bench.peers.pyg import PygFull, PygInfluenced
from d3gnn.bench.peers.ripple import Ripple
from d3gnn.bench.peers.tuned import TunedFull, TunedInfluenced
from d3gnn.nn import GNN

__all__ = ["PEERS", "Peer", "make_peer"]

#: The peers by name. Their libraries are imported when one is made.
PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (DglFull, DglInfluenced, PygFull, PygInfluenced, TunedFull, TunedInfluenced, Ripple)
}


def make_peer(name: str, model: GNN, graph: LiveGraph) -> Peer:
    """The peer of this name over a graph, with nothing computed yet."""
    if name not in PEERS:
        raise ValueError(f"peer={name!r}: choose one of {', '.join(PEERS)}")
    return PEERS[name](model, graph)

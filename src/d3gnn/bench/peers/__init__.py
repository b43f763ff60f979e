"""Other systems that keep the same embeddings up to date after every batch of a changing graph."""

from __future__ import annotations

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers.base import Peer
from d3gnn.bench.peers.dgl import DglFull, DglInfluenced
from d3gnn.bench.peers.pyg import PygFull, PygInfluenced
from d3gnn.bench.peers.ripple import Ripple
from d3gnn.bench.peers.tuned import TunedFull, TunedInfluenced
from d3gnn.nn import GNN

__all__ = ["PEERS", "Peer", "make_peer"]

#: Peers by name. Their libraries are imported on construction.
PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (DglFull, DglInfluenced, PygFull, PygInfluenced, TunedFull, TunedInfluenced, Ripple)
}


def make_peer(name: str, model: GNN, graph: LiveGraph) -> Peer:
    """A peer over a graph; `Peer.load` computes the first embeddings."""
    if name not in PEERS:
        raise ValueError(f"peer={name!r}: choose one of {', '.join(PEERS)}")
    return PEERS[name](model, graph)

"""Layers and models: what a vertex sends, how messages are joined, how a vertex renews itself."""

from d3gnn.nn.gat import GAT, GATv2
from d3gnn.nn.gcn import GCN
from d3gnn.nn.gin import GIN
from d3gnn.nn.graph_conv import GraphConv
from d3gnn.nn.heads import Classifier, Head, LinkPredictor, PairHead, Regressor, Similarity
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.pyg import CannotTake, from_pyg
from d3gnn.nn.sage import SAGE, GraphSAGE
from d3gnn.nn.stage import Stage

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GNN",
    "SAGE",
    "CannotTake",
    "Classifier",
    "GATv2",
    "GraphConv",
    "GraphSAGE",
    "Head",
    "Layer",
    "LinkPredictor",
    "PairHead",
    "Regressor",
    "Similarity",
    "Stage",
    "from_pyg",
]

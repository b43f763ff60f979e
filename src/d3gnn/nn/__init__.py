"""Layers, models and heads, with the names and arguments of PyG."""

from d3gnn.nn.gat import GATConv, GATv2Conv
from d3gnn.nn.gcn import GCNConv
from d3gnn.nn.gin import GINConv
from d3gnn.nn.graph_conv import GraphConv
from d3gnn.nn.heads import Classifier, Head, LinkPredictor, PairHead, Regressor, Similarity
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.models import GAT, GCN, GIN, GraphSAGE
from d3gnn.nn.pyg import from_pyg
from d3gnn.nn.sage import SAGEConv
from d3gnn.nn.stage import Stage
from d3gnn.nn.traced import UnsupportedModelError

__all__ = [
    # Models.
    "GNN",
    "GraphSAGE",
    "GCN",
    "GAT",
    "GIN",
    "from_pyg",
    "UnsupportedModelError",
    # Layers.
    "Layer",
    "SAGEConv",
    "GCNConv",
    "GraphConv",
    "GINConv",
    "GATConv",
    "GATv2Conv",
    "Stage",
    # Heads.
    "Head",
    "Classifier",
    "Regressor",
    "PairHead",
    "LinkPredictor",
    "Similarity",
]

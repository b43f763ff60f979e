"""Draws docs/pictures/dataflow.svg: python docs/pictures/dataflow.py"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

mpl.rcParams.update(
    {"svg.hashsalt": "d3gnn", "svg.fonttype": "path", "font.size": 10, "font.family": "DejaVu Sans"}
)
INK, LINE = "#1f2937", "#64748b"
BOXES = [
    ("Partition", "order, ids,\nvertex-cut,\ngraph log", "#dbeafe"),
    ("Vertex 0", "features of\nmasters", "#dcfce7"),
    ("Edge 1", "messages,\npartial\naggregates", "#fef3c7"),
    ("Vertex 1", "update,\nvalues to\nreplicas", "#dcfce7"),
    ("Edge 2", "messages,\npartial\naggregates", "#fef3c7"),
    ("Vertex 2", "embeddings,\nhead, alerts", "#dcfce7"),
]
WIDTH, HEIGHT, GAP, PARTS = 1.8, 1.5, 0.62, 3


def main() -> None:
    figure, axes = plt.subplots(figsize=(12.5, 3.2))
    left = 2.1
    for i, (name, text, color) in enumerate(BOXES):
        x = left + i * (WIDTH + GAP)
        for part in reversed(range(1 if i == 0 else PARTS)):
            shift = 0.1 * part
            box = FancyBboxPatch(
                (x + shift, shift), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=color, edgecolor=LINE, linewidth=1,
            )  # fmt: skip
            axes.add_patch(box)
        axes.text(x + WIDTH / 2, HEIGHT - 0.22, name, ha="center", va="center", weight="bold", color=INK)
        axes.text(x + WIDTH / 2, HEIGHT / 2 - 0.17, text, ha="center", va="center", color=INK, size=9)
        arrow(axes, x - GAP + (0 if i <= 1 else 0.2), x)
    end = left + len(BOXES) * (WIDTH + GAP) - GAP
    arrow(axes, end + 0.2, end + GAP + 0.1)
    axes.text(
        left - GAP - 0.08, HEIGHT / 2, "events:\ncreate, update,\ndelete", ha="right", va="center", color=INK
    )
    axes.text(
        end + GAP + 0.2,
        HEIGHT / 2,
        "embeddings,\npredictions,\ntombstones",
        ha="left",
        va="center",
        color=INK,
    )
    middle = left + WIDTH + GAP
    axes.annotate(
        "",
        (middle, -0.22),
        (end + 0.2, -0.22),
        arrowprops={"arrowstyle": "<->", "color": LINE, "shrinkA": 0, "shrinkB": 0},
    )
    axes.text(
        (middle + end) / 2,
        -0.47,
        "one operator per half layer, in logical parts that run in parallel",
        ha="center",
        color=LINE,
        size=9,
    )
    axes.set_xlim(0, end + 2.2)
    axes.set_ylim(-0.65, HEIGHT + 0.35)
    axes.set_axis_off()
    figure.savefig(Path(__file__).with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None})


def arrow(axes: plt.Axes, begin: float, end: float) -> None:
    axes.add_patch(
        FancyArrowPatch(
            (begin, HEIGHT / 2),
            (end, HEIGHT / 2),
            arrowstyle="-|>",
            mutation_scale=12,
            color=LINE,
            linewidth=1.2,
        )
    )


if __name__ == "__main__":
    main()

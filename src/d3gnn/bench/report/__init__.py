"""A report of benchmark results: Markdown, one self-contained HTML page, and SVG charts.

>>> import tempfile
>>> from pathlib import Path
>>> result = {"bench": "partitioners", "version": "1", "settings": {}, "edges_per_second": 2_000_000.0}
>>> with tempfile.TemporaryDirectory() as folder:
...     write_report([result], Path(folder)).name
'report.html'
"""

from __future__ import annotations

from d3gnn.bench.report.write import write_report

__all__ = ["write_report"]

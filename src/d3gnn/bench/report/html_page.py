"""Render sections as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape

from d3gnn.bench.report.formatting import slug
from d3gnn.bench.report.section import FOLD, Cell, Loss, Picture, Section, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --quiet: #59636e; --page: #ffffff; --line: #d6dbe0;
  --band: #f5f7f9; --link: #0a5fa8; --loss: #b42318; --loss-band: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --quiet: #9aa4af; --page: #14181d;
  --line: #343c45; --band: #1c2229; --link: #6cb6f0; --loss: #ff9a8d; --loss-band: #3d1f1c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; color: var(--ink);
  background: var(--page); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.8rem; margin: .5rem 0 1rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; margin: 0; padding: 0; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.35; }
th, td { padding: .38rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; color: var(--quiet); font-weight: 600; }
tbody tr:nth-child(even) { background: var(--band); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
td.loss { color: var(--loss); background: var(--loss-band); font-weight: 700; }
figure { margin: 1.2rem 0; padding: .8rem; background: #ffffff; border: 1px solid var(--line);
  border-radius: 8px; }
figure img { display: block; width: 100%; max-width: 58rem; height: auto; margin: 0 auto; }
pre { margin: .4rem 0; padding: .7rem .9rem; overflow-x: auto; background: var(--band); border-radius: 6px;
  font: .82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--quiet); font-size: .9rem; }
""".strip()


def to_html(title: str, sections: Sequence[Section]) -> str:
    """The report as HTML, with embedded charts."""
    places = [f"{place}-{slug(section.title)}" for place, section in enumerate(sections, 1)]
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        *_contents(sections, places),
        "<main>",
    ]
    for section, place in zip(sections, places, strict=True):
        parts += _section(section, place)
    return "\n".join([*parts, "</main>", "</body>", "</html>", ""])


def _contents(sections: Sequence[Section], places: Sequence[str]) -> Iterator[str]:
    yield "<nav><ul>"
    for section, place in zip(sections, places, strict=True):
        if section.level == 2:
            yield f'<li><a href="#{place}">{escape(section.title)}</a></li>'
    yield "</ul></nav>"


def _section(section: Section, place: str) -> Iterator[str]:
    yield f'<h{section.level} id="{place}">{escape(section.title)}</h{section.level}>'
    for paragraph in section.text:
        yield f"<p>{escape(paragraph)}</p>"
    if section.table is not None:
        yield from _table(section.table)
    for picture in section.pictures:
        yield _figure(picture)
    if section.commands:
        count = len(section.commands)
        yield "<details open>" if count <= FOLD else "<details>"
        yield f"<summary>Reproduce{f' ({count} commands)' if count > 1 else ''}</summary>"
        yield f"<pre><code>{escape(chr(10).join(section.commands))}</code></pre></details>"


def _table(table: Table) -> Iterator[str]:
    yield '<div class="wide"><table>'
    cells = [
        f"<th{_css_class(place, table)}>{escape(title)}</th>" for place, title in enumerate(table.titles)
    ]
    yield f"<thead><tr>{''.join(cells)}</tr></thead>"
    yield "<tbody>"
    for row in table.rows:
        cells = [
            f"<td{_css_class(place, table, cell)}>{escape(str(cell))}</td>" for place, cell in enumerate(row)
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _css_class(place: int, table: Table, cell: Cell = "") -> str:
    kinds = ["n"] * (place >= table.names) + ["loss"] * isinstance(cell, Loss)
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _figure(picture: Picture) -> str:
    # A separate image: ids and styles of one SVG cannot affect another.
    data = base64.b64encode(picture.svg.encode()).decode()
    return (
        f'<figure><img alt="{escape(picture.description)}" src="data:image/svg+xml;base64,{data}"></figure>'
    )

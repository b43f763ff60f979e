"""`python -m d3gnn` is the `d3gnn` command."""

from d3gnn.cli import app

if __name__ == "__main__":
    app()

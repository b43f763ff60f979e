"""Sinks of Spark: a check that it lacks."""

from __future__ import annotations

from pathlib import Path


def check_output(output: str, checkpoint: str) -> None:
    """Check that a new query does not write into the files of an earlier one.

    Spark's file sinks number what they have written by the batches of the query. They leave out the batches
    of a new query, which start at 0 again, without an error.
    """
    if ":/" in output or ":/" in checkpoint:
        return
    if (Path(output) / "_spark_metadata").is_dir() and not (Path(checkpoint) / "metadata").exists():
        raise ValueError(
            f"the output {output} was written by an earlier query, and the checkpoint {checkpoint} is new: "
            "Spark would leave out the first batches, whose numbers are in the output already. Name a new "
            "output folder for the new checkpoint; readers can union both tables"
        )

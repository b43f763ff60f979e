"""A pipeline in a process of its own, to be killed: `python driver.py FOLDER TASKS`."""

import sys
from pathlib import Path

from d3gnn import GraphSchema
from d3gnn.spark.session import session
from d3gnn.testing.pipelines import PipelineRun


def main(folder: Path, tasks: int) -> None:
    spark = session("local[2]", "faults")
    run = PipelineRun(spark, folder, GraphSchema(features={"x": 3}), tasks=tasks)
    running = run.start(restarts=20)
    running.awaitTermination()
    (folder / "restarts").write_text(str(running.restarted))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

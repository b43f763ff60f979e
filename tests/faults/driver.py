"""A pipeline in a process of its own, to be killed: `python driver.py FOLDER`."""

import sys
from pathlib import Path

from d3gnn import GraphSchema, StreamingGNN
from d3gnn.nn import GraphSAGE
from d3gnn.spark.session import session

SCHEMA = (
    "op string, element string, src long, dst long, key long, feature string, value array<float>, time long"
)


def main(folder: Path) -> None:
    spark = session("local[2]", "faults")
    schema = GraphSchema(features={"x": 3})
    gnn = StreamingGNN(GraphSAGE([3, 8, 4], seed=3), parts=2, schema=schema, arrays=folder / "arrays")
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    running = gnn.start(
        events, folder / "out", checkpoint=folder / "checkpoint", trigger={"availableNow": True}, restarts=20
    )
    running.await_termination()
    (folder / "restarts").write_text(str(running.restarted))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The inputs of a run, as the options name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from d3gnn.sources import EdgeListError
from d3gnn.sources.files import Found, TimeUnit, look
from d3gnn.sources.roles import Kind
from d3gnn.sources.sample import Format, visible_files

#: A single file larger than this is cut into pieces, unless --batch is given: a batch must fit into memory.
CUT_BYTES = 8 << 20
CUT_EVENTS = 100_000


@dataclass(frozen=True)
class Columns:
    """The options that name columns of one input, by the names of the event format."""

    src: str | None = None
    dst: str | None = None
    time: str | None = None
    op: str | None = None
    key: str | None = None
    value: str | None = None
    feature: str | None = None

    def given(self) -> dict[str, str]:
        """The columns that were named."""
        return {role: name for role, name in asdict(self).items() if name is not None}


class Input(NamedTuple):
    """One input."""

    #: `input`, `edges`, `features` or `labels`.
    name: str
    path: Path
    kind: Kind
    columns: dict[str, str]
    values: list[str]

    @property
    def option(self) -> str:
        """As the user wrote it."""
        return "INPUT" if self.name == "input" else f"--{self.name}"

    def size_of_piece(self, batch: int | None) -> int | None:
        """Events in each piece of a file that has to be cut; None for a folder or a small file."""
        if not self.path.is_file():
            return None
        if batch is None and self.path.stat().st_size > CUT_BYTES:
            return CUT_EVENTS
        return batch


@dataclass(frozen=True)
class Inputs:
    """All inputs, and the options that apply to all of them."""

    inputs: list[Input]
    #: The column options by their names, for the record.
    columns: dict[str, str]
    format: Format | None
    ids: Literal["integer", "string"] | None
    batch: int | None
    ts_unit: TimeUnit | None

    @staticmethod
    def of(
        input: Path | None,
        edges: Path | None,
        features: Path | None,
        labels: Path | None,
        columns: Columns,
        of_features: Columns,
        of_labels: Columns,
        **options: Any,
    ) -> Inputs:
        """The inputs, with the columns that belong to each."""
        if not any((input, edges, features, labels)):
            raise ValueError("there is no input; give INPUT, --edges, --features or --labels")
        main = {} if edges or not input else columns.given()
        found = [
            input and Input("input", input, "events", main, []),
            edges and Input("edges", edges, "edges", columns.given(), []),
            features and _of_vertices("features", features, of_features),
            labels and _of_vertices("labels", labels, of_labels),
        ]
        own = _by_option("", columns)
        named = own | _by_option("feature-", of_features) | _by_option("label-", of_labels)
        for prefix, path in (("--feature-", features), ("--label-", labels)):
            for option in named:
                if f"--{option}".startswith(prefix) and option != "feature-name" and path is None:
                    raise ValueError(f"--{option} names a column of {prefix[:-1]}s, but that is not given")
        unused = [option for option in own if option != "ts"]
        if unused and not (input or edges):
            raise ValueError(f"--{unused[0]} names a column of INPUT or --edges, but neither is given")
        return Inputs([one for one in found if one], named, **options)

    def check(self, follow: bool, batch_files: int | None, every: float) -> None:
        """Raise if the inputs do not fit the options."""
        if every < 0:
            raise ValueError(f"--every {every}: must be 0 seconds or more")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"--batch {self.batch}: must be at least 1 event")
        if batch_files is not None and batch_files < 1:
            raise ValueError(f"--batch-files {batch_files}: must be at least 1 file")
        for one in self.inputs:
            if not one.path.exists():
                raise FileNotFoundError(
                    f"{self.prefix(one)}{one.path} does not exist; give a file or a folder"
                )
        paths = ", ".join(str(one.path) for one in self.inputs)
        are = "are {}s" if len(self.inputs) > 1 else "is a {}"
        if self.batch is not None and all(one.path.is_dir() for one in self.inputs):
            raise ValueError(
                f"--batch cuts single files, but {paths} {are.format('folder')}; use --batch-files"
            )
        if follow and all(one.path.is_file() for one in self.inputs):
            raise ValueError(f"--follow waits for new files in a folder, but {paths} {are.format('file')}")

    def empty_folders(self) -> list[Path]:
        """The folders without any content yet, from which nothing can be found out."""
        return [
            one.path
            for one in self.inputs
            if one.path.is_dir() and not any(file.stat().st_size for file in visible_files(one.path))
        ]

    def prefix(self, one: Input) -> str:
        """What messages about an input begin with: the option, unless it is the only argument."""
        return f"{one.option}: " if one.name != "input" or len(self.inputs) > 1 else ""

    def record(self) -> dict[str, Any]:
        """The options that a restart has to repeat, by their names."""
        paths = {one.name: str(one.path.resolve()) for one in self.inputs}
        # The size of the pieces, not the option: a file that grew above the limit must not be read twice.
        sizes = {one.name: size for one in self.inputs if (size := one.size_of_piece(self.batch))}
        options = {"format": self.format, "ids": self.ids, "ts-unit": self.ts_unit}
        return {**paths, **options, "batch": sizes or None, **self.columns}

    def look(self) -> dict[str, Found]:
        """Look into the first files of all inputs. If the ids of any are strings, all are."""
        found = {one.name: self._look(one, self.ids) for one in self.inputs}
        if len({of.files.ids for of in found.values()}) > 1:
            found = {one.name: self._look(one, "string") for one in self.inputs}
        if self.ts_unit is not None and len(found) > 1:
            self._set_unit(found)
        return found

    def _look(self, one: Input, ids: Literal["integer", "string"] | None) -> Found:
        names = dict(one.columns)
        shared = self.columns.get("ts")
        with self._errors_of(one):
            unit = self.ts_unit if len(self.inputs) == 1 else None
            options: Any = {"kind": one.kind, "format": self.format, "values": one.values, "ids": ids}
            if shared is None or "time" in names:
                return look(one.path, names=names, time_unit=unit, **options)
            # --ts names the time in any other input that has this column, too.
            try:
                return look(one.path, names=names | {"time": shared}, time_unit=unit, **options)
            except EdgeListError as error:
                if f"no column {shared!r} for time" not in str(error):
                    raise
                return look(one.path, names=names, time_unit=unit, **options)

    def _set_unit(self, found: dict[str, Found]) -> None:
        """Apply --ts-unit to the inputs that have integer times."""
        timed = [
            name
            for name, of in found.items()
            if of.files.columns.get(of.files.roles.get("time", "")) == "bigint"
        ]
        if not timed:
            raise EdgeListError(f"--ts-unit {self.ts_unit}: no input has a column of integer times")
        for name in timed:
            files = replace(found[name].files, time_unit=cast(TimeUnit, self.ts_unit))
            found[name] = found[name]._replace(files=files)

    @contextmanager
    def _errors_of(self, one: Input) -> Iterator[None]:
        """Name the option in errors, which name the file."""
        try:
            yield
        except EdgeListError as error:
            raise EdgeListError(f"{self.prefix(one)}{error}") from error


def _of_vertices(kind: Literal["features", "labels"], path: Path, columns: Columns) -> Input:
    names = columns.given()
    values = [name.strip() for name in names.pop("value", "").split(",") if name.strip()]
    return Input(kind, path, kind, names, values)


def _by_option(prefix: str, columns: Columns) -> dict[str, str]:
    names = {"time": "ts", "feature": "feature-name"} | ({"src": "id"} if prefix else {})
    return {f"{prefix}{names.get(role, role)}": name for role, name in columns.given().items()}

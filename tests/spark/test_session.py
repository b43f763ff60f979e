from __future__ import annotations

import logging
import os
import site
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from d3gnn.spark import java, launcher, session
from d3gnn.spark.worker_python import WrongPython, check_python


def java_at(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like Java's home."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "_PLACES", (str(tmp_path / "jvm"),))
    return tmp_path


def test_java_home_has_priority(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(bare / "own", "21.0.1")))
    java_at(bare / "jvm" / "other", "17.0.15")
    assert java.java_home() == bare / "own"


def test_an_old_java_is_skipped(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(bare / "old", "1.8.0_392")))
    java_at(bare / "jvm" / "eleven", "11.0.2", release=False)
    java_at(bare / "jvm" / "seventeen", "17.0.15", release=False)
    assert java.java_home() == bare / "jvm" / "seventeen"


def test_java_is_found_on_the_path(bare: Path) -> None:
    home = java_at(bare / "real", "17")
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(home / "bin" / "java")
    assert java.java_home() == home


def test_without_java_one_line_names_what_is_missing_and_how_to_install_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(bare / "old", "11.0.2")))
    with pytest.raises(java.NoJava) as caught:
        java.java_home()
    message = str(caught.value)
    assert "\n" not in message
    assert "Java 17 or newer" in message
    assert f"JAVA_HOME ({bare / 'old'})" in message
    assert "PATH" in message
    assert f"{bare / 'old'} has Java 11" in message
    assert str(bare / "jvm") in message
    assert "sudo apt-get install openjdk-17-jre-headless" in message
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(java.NoJava, match=r"JAVA_HOME \(not set\)"):
        java.java_home()


def test_a_session_without_java_installs_nothing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    (bare / "path").mkdir()
    for tool in ("apt-get", "apt", "brew"):
        (bare / "path" / tool).write_text(f"#!/bin/sh\ntouch {bare / 'installed'}\n")
        (bare / "path" / tool).chmod(0o755)
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: ran.append(command))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(java.NoJava):
        session.session("local[1]")
    assert not ran
    assert not (bare / "installed").exists()


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    def who(batches: object) -> object:
        import sys

        yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    [row] = spark.range(1, numPartitions=1).mapInArrow(who, "path string").collect()  # type: ignore[arg-type]
    assert row.path == sys.executable


def test_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    """Every process would compile Spark's zipped copy."""

    def where(batches: object) -> object:
        import sys

        paths = [sys.modules["pyspark"].__file__, *sys.path]
        yield pa.RecordBatch.from_pydict({"path": [path for path in paths if path and "pyspark" in path]})

    rows = spark.range(1, numPartitions=1).mapInArrow(where, "path string").collect()  # type: ignore[arg-type]
    assert {row.path for row in rows} == {pyspark.__file__}


def launched(program: str, python_path: str) -> list[str]:
    """The interpreter and PYTHONPATH with which a launcher starts Python."""
    code = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])"
    environment = os.environ | {"PYTHONPATH": python_path}
    ran = subprocess.run([program, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_python_starts_without_sparks_copy_of_pyspark(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    places = [tmp_path / "a file" / "in it", tmp_path / "folder"]
    program = launcher.launcher(places)
    assert Path(program).parent == places[1]
    sparks = [f"/spark/{name}" for name in ("pyspark.zip", "py4j-0.10-src.zip", "spark-core_2.13-4.3.jar")]
    own = ["/a folder", "/*", "/other.zip", "relative"]
    mixed = [sparks[0], own[0], own[1], sparks[1], own[2], sparks[2], own[3]]
    assert launched(program, ":".join(mixed)) == [sys.executable, ":".join(own)]
    assert launched(program, ":".join(sparks)) == [sys.executable, ""]
    assert launcher.launcher(places) == program, "the next session uses the same launcher"
    assert [path.name for path in places[1].iterdir()] == [Path(program).name]


def test_python_starts_as_it_is_if_no_folder_allows_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = os.statvfs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags.f_flag | os.ST_NOEXEC))
        assert launcher.launcher([tmp_path]) == sys.executable
    monkeypatch.setattr(site, "getsitepackages", lambda: ["/elsewhere"])
    assert launcher.launcher([tmp_path]) == sys.executable, "without a launcher, Python starts directly"
    assert not list(tmp_path.iterdir())


def test_a_d3gnn_session_needs_no_advice(spark: SparkSession) -> None:
    assert session.advice(spark) == []
    folder = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert len(os.fsencode(folder)) <= 60


def test_an_active_session_is_returned_unchanged(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert session.session("local[7]") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_advice_names_setting_value_time_and_reason(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = spark.newSession()
    for name in ("spark.sql.streaming.checkpointFileManagerClass", "spark.sql.shuffle.partitions"):
        other.conf.unset(name)
    other.conf.set("spark.sql.adaptive.enabled", "false")
    other.conf.set("spark.sql.shuffle.partitions", "200")
    lines = session.advice(other)
    assert [line.split("=")[0] for line in lines[:1]] == ["spark.sql.adaptive.enabled"]
    assert "spark.sql.shuffle.partitions=2 (can be set now): starting 200 tasks on 2 cores" in lines[-1]
    monkeypatch.setattr(session, "_advised", set())
    with caplog.at_level(logging.WARNING, "d3gnn"):
        session.advise(other)
        session.advise(other)
    assert len(caplog.records) == 1
    assert "spark.sql.adaptive.enabled=true (can be set now)" in caplog.text


def python_at(path: Path, answer: str) -> str:
    """A program that answers as another Python would."""
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(0o755)
    return str(path)


def test_one_line_says_that_workers_run_another_python(tmp_path: Path) -> None:
    own = f"{sys.version_info[0]} {sys.version_info[1]}"
    for program, what in [
        (python_at(tmp_path / "older", "3 8 True"), "which is 3.8"),
        (python_at(tmp_path / "bare", f"{own} False"), "which has no d3gnn"),
        (str(tmp_path / "absent"), "which is not on the PATH"),
    ]:
        with pytest.raises(WrongPython, match=f"{program}, {what}.*PYSPARK_PYTHON") as caught:
            check_python(program)
        assert "\n" not in str(caught.value)
    check_python(python_at(tmp_path / "same", f"{own} True"))
    check_python(sys.executable)

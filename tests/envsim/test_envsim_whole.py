"""What a command writes is whole or absent."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from envsim.__main__ import main
from envsim.api import EnvsimError
from envsim.commands import writing
from envsim.formats.movingai import write_scenario
from envsim.lake import sets
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, make_instance, write_instances
from envsim.whole import whole

CORRIDOR = make_instance(["...."], [(0, 0)], [(0, 3)])


@pytest.mark.parametrize("ended_by", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("directory", [False, True])
def test_a_write_that_ends_early_leaves_what_was_there(
    tmp_path: Path, ended_by: type[BaseException], directory: bool
) -> None:
    path = tmp_path / "out"
    if not directory:
        path.write_text("old")

    def write() -> None:
        with whole(path) as draft:
            if directory:
                draft.mkdir()
            (draft / "part" if directory else draft).write_text("half")
            raise ended_by

    with pytest.raises(ended_by):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ([] if directory else ["out"])
    assert directory or path.read_text() == "old"


def test_an_error_names_the_path_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, whole(tmp_path / "nowhere" / "out") as draft:
        draft.write_text("")
    assert caught.value.filename == str(tmp_path / "nowhere" / "out")


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "--n", "40", "--out", "out.jsonl"],
        ["export", "in.jsonl", "--out", "out.jsonl"],
        ["benchmark", "--set", "in.jsonl", "--prompts", "out.jsonl"],
        ["benchmark", "--set", "in.jsonl", "--baseline", "out.jsonl"],
        ["benchmark", "--set", "in.jsonl", "--score", "answers.jsonl", "--verdicts", "out.jsonl"],
        ["render", "in.jsonl", "--format", "svg", "--out", "out.svg"],
    ],
)
def test_a_full_disk_leaves_nothing(tmp_path: Path, command: list[str]) -> None:
    resource = pytest.importorskip("resource")
    write_instances(tmp_path / "in.jsonl", Lake().generate(EnvConfig(), 40, 0).instances)
    (tmp_path / "answers.jsonl").write_text("")
    if "answers.jsonl" in command:
        assert main(["benchmark", "--set", str(tmp_path / "in.jsonl"), "--baseline", str(tmp_path / "b")]) == 0
        (tmp_path / "b").rename(tmp_path / "answers.jsonl")
    before = sorted(tmp_path.iterdir())
    ended = subprocess.run(
        [sys.executable, "-m", "envsim", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("envsim: ")
    assert ended.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_is_whole_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(instance: LakeInstance, path: Path) -> Path:
        if path.name.startswith("00001"):
            raise OSError(28, "No space left on device")
        return write_scenario(instance, path)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write_scenario", fails)
        with pytest.raises(OSError, match="No space"):
            writing.write([CORRIDOR, CORRIDOR], tmp_path / "out", "movingai")
    assert list(tmp_path.iterdir()) == []
    writing.write([CORRIDOR, CORRIDOR], tmp_path / "out", "movingai")
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_via_cells_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_via = make_instance(["...."], [(0, 0)], [(0, 3)], via=[(0, 1)])
    with pytest.raises(EnvsimError, match="two goals"):
        writing.write([CORRIDOR, with_via], tmp_path / "out", "movingai")
    (tmp_path / "config.yaml").write_text("goals: {1: 0.9, 2: 0.1}\n")
    monkeypatch.setattr(Lake, "generate", None)
    asked = ["generate", "--config", str(tmp_path / "config.yaml"), "--format", "movingai", "--out"]
    assert main([*asked, str(tmp_path / "out")]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_cached_sets_have_the_mode_of_any_file_and_a_failed_write_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "_sha256", lambda _: sets.sets_file().sets["anchor"].sha256)
    before = os.umask(0o022)
    try:
        sets._write(tmp_path / "anchor.jsonl", "anchor", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "anchor.jsonl").stat().st_mode) == 0o644
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvsimError, match="set XDG_CACHE_HOME"):
        sets._write(tmp_path / "file" / "anchor.jsonl", "anchor", b"{}")


def test_no_home_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert main(["sets", "anchor"]) == 2
    printed = capsys.readouterr().err
    assert "XDG_CACHE_HOME" in printed
    assert printed.count("\n") == 1

"""Curves in the real trackers, offline, read back from what they wrote; a step that was repeated is there once."""

from __future__ import annotations

import importlib
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fake_worker import metrics
from pydantic import TypeAdapter, ValidationError

from trainer.__main__ import main
from trainer.metrics import StepMetrics, append, curves, read_attempt
from trainer.profile import ProfileError, load_profile
from trainer.spec import StageSpec, TrackerName, Trackers
from trainer.tracking import (
    Curves,
    Ledger,
    Point,
    Series,
    TrackingError,
    check_trackers,
    open_curves,
    stage_curves,
)

Curve = list[tuple[int, float]]
REWARD = "train/reward"


def step(number: int, reward: float) -> StepMetrics:
    return metrics(number, 6).model_copy(update={"reward": reward, "time": 1.7e9 + number})


def train_in_two_attempts(tracker: TrackerName, root: Path, spec: StageSpec) -> None:
    """Steps 1 to 4, the supervisor killed with its worker; then an attempt that repeats 3 and 4 and goes on to 6."""
    stage, config = root / "stages" / "000", spec.model_dump(mode="json")
    first, second = stage / "attempt-1", stage / "attempt-2"
    first.mkdir(parents=True)
    with stage_curves([tracker], root, stage, stage=0, config=config, trouble=pytest.fail) as told:
        for number in range(1, 5):
            append(first, step(number, number / 10))
            told.event({"event": "step", **step(number, number / 10).model_dump(mode="json")})
    second.mkdir()
    with stage_curves([tracker], root, stage, stage=0, config=config, trouble=pytest.fail) as told:
        told.event({"event": "start", "attempt": "attempt-2"})
        for number in range(3, 7):
            append(second, step(number, number / 10))
            told.event({"event": "step", **step(number, number / 10).model_dump(mode="json")})
    # Whoever opens a finished stage again adds nothing.
    with stage_curves([tracker], root, stage, stage=0, config=config, trouble=pytest.fail):
        pass


EXPECTED: Curve = [(number, number / 10) for number in range(1, 7)]


def tensorboard_curves(folder: Path) -> Mapping[str, Curve]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    read = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, pytest.approx(event.value)) for event in read.Scalars(tag)]  # type: ignore[misc]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_has_every_step_once(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    root = tmp_path / "mine"
    train_in_two_attempts("tensorboard", root, make_spec(steps=6))
    folder = root / "tensorboard" / "stage-000"
    found = tensorboard_curves(folder)
    assert found[REWARD] == EXPECTED
    assert set(found) == set(curves(step(1, 0.1)))
    read = EventAccumulator(str(folder)).Reload()
    # When the steps were made, not when they were drawn.
    assert [event.wall_time for event in read.Scalars(REWARD)] == [1.7e9 + number for number in range(1, 7)]


def wandb_rows(file: Path) -> Curve:
    """Steps and rewards of an offline run: a LevelDB log of protocol buffers behind a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415

    data, place, record, rows = file.read_bytes(), 7, b"", Curve()
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            parsed = Record.FromString(record)
            record = b""
            if parsed.WhichOneof("record_type") == "history":
                values = {"/".join(item.nested_key) or item.key: item.value_json for item in parsed.history.item}
                rows.append((parsed.history.step.num, float(values[REWARD])))
    return rows


def test_wandb_offline_has_every_step_once(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    root = tmp_path / "mine"
    train_in_two_attempts("wandb", root, make_spec(steps=6))
    files = sorted((root / "tracking" / "wandb").glob("offline-run-*/*.wandb"))
    assert len({file.name for file in files}) == 1, "every part belongs to the same run"
    assert sorted(row for file in files for row in wandb_rows(file)) == EXPECTED


NO_KEY = re.compile(r"tracking: wandb cannot start: No API key.*; log in, or set WANDB_MODE=offline")


def without_key(line: list[str], home: Path, **own: str) -> subprocess.CompletedProcess[str]:
    """Python where W&B finds no key but what is given here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return subprocess.run(
        [sys.executable, *line],
        cwd=home,
        env={**environment, "HOME": str(home), "NETRC": str(home / "netrc"), **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_wandb_without_a_key_is_refused_before_training(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(make_spec().model_dump_json())
    line = ["-m", "trainer", "stage", "--spec", "spec.json", "--directory", "000", "--tracking", "wandb"]
    ended = without_key(line, tmp_path)
    assert ended.returncode == 2
    assert NO_KEY.fullmatch(ended.stderr.strip().splitlines()[-1])
    assert not list(tmp_path.glob("000/attempt-*"))


def test_wandb_is_asked_for_its_key_where_trackers_are_checked(tmp_path: Path) -> None:
    line = ["-c", "from trainer.tracking import check_trackers; check_trackers(['tensorboard', 'wandb'])"]
    ended = without_key(line, tmp_path)
    assert ended.returncode == 1
    assert NO_KEY.search(ended.stderr)
    offline = without_key(line, tmp_path, WANDB_MODE="offline")
    assert (offline.returncode, offline.stderr) == (0, "")
    assert without_key(line, tmp_path, WANDB_API_KEY="0" * 40).returncode == 0


def test_trackio_has_every_step_once(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = importlib.import_module("trackio.sqlite_storage")
    # Its place was read from the environment when it was imported.
    monkeypatch.setattr(storage, "TRACKIO_DIR", tmp_path / "store")
    root = tmp_path / "mine"
    train_in_two_attempts("trackio", root, make_spec(steps=6))
    [run] = storage.SQLiteStorage.get_run_records("envwright")
    assert run["name"].startswith("mine-")
    assert run["name"].endswith("/stage-000")
    rows = storage.SQLiteStorage.get_logs("envwright", run["name"])
    assert [(row["step"], row[REWARD]) for row in rows] == EXPECTED


def test_a_crash_between_writing_down_and_telling_doubles_nothing(tmp_path: Path) -> None:
    series = Series(tmp_path, "run", {})
    ledger = Ledger(series, "wandb")
    ledger.claim(7)
    again = Ledger(series, "wandb")
    assert (again.identity, again.last) == (ledger.identity, 7)
    assert Ledger(series, "trackio").last == -1


class Failing:
    errors = (OSError,)

    def __init__(self) -> None:
        self.points = list[int]()

    def log(self, point: Point) -> None:
        if point.step == 2:
            raise OSError(28, "No space left on device")
        self.points.append(point.step)

    def close(self) -> None:
        raise AssertionError("a tracker that failed is left alone")


def test_a_tracker_that_fails_is_told_of_once_and_stops_nothing() -> None:
    said, failing = list[str](), Failing()
    told = Curves({"wandb": (failing, -1)}, said.append)
    for number in range(1, 5):
        told.step(step(number, 0.5))
    told.close()
    assert failing.points == [1]
    [line] = said
    assert "wandb failed" in line
    assert "No space left on device" in line


def test_a_folder_called_as_the_package_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackio").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for module in ("trackio", "wandb"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(TrackingError, match="trackio, wandb are not installed; pip install trackio wandb"):
        check_trackers(["trackio", "wandb"])


def test_the_setting_is_validated(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="names a tracker twice"):
        TypeAdapter(Trackers).validate_python(["wandb", "wandb"])
    profile = tmp_path / "mine.yaml"
    shipped = (Path(__file__).parents[2] / "trainer/profiles/seedling.yaml").read_text()
    profile.write_text(shipped + "tracking: [tensorbord]\n")
    with pytest.raises(ProfileError, match=r"tracking.0 = 'tensorbord': Input should be 'tensorboard'"):
        load_profile(profile)
    profile.write_text(shipped + "tracking: []\n")
    assert load_profile(profile).tracking == []
    assert load_profile("seedling").tracking == ["tensorboard"]


def test_an_event_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    with (
        pytest.raises(TrackingError, match=r"tensorboard cannot write to .*/tensorboard/run: "),
        open_curves(["tensorboard"], Series(tmp_path, "run", {}), []),
    ):
        pass


def test_the_command_refuses_a_tracker_that_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["stage", "--spec", "x", "--directory", "y", "--tracking", "mlflow"])
    assert exit_code.value.code == 2
    assert "invalid choice: 'mlflow'" in capsys.readouterr().err


def test_a_step_that_diverges_is_written_read_and_drawn(tmp_path: Path) -> None:
    diverged = step(1, math.inf).model_copy(update={"gradient_norm": math.nan})
    append(tmp_path, diverged)
    [read] = read_attempt(tmp_path)
    assert read.reward == math.inf
    assert math.isnan(read.gradient_norm)
    series = Series(tmp_path, "stage-000", {})
    with open_curves(["tensorboard"], series, [], trouble=pytest.fail) as told:
        # What supervisors may add to a step's event is no metric.
        told.event({"event": "step", "attempt": "attempt-1", **read.model_dump(mode="json")})
    assert tensorboard_curves(tmp_path / "tensorboard" / "stage-000")[REWARD] == [(1, math.inf)]


def test_every_metric_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/tracking.md").read_text(encoding="utf-8")
    section = page.split("## Metrics of a step")[1].split("Of the series")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert documented == [name for name in StepMetrics.model_fields if name not in ("step", "steps", "time")]

"""The command line: what it prints, where it writes, and exit code 2 for bad input."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainer.supervision
from trainer.__main__ import main
from trainer.attempts import live_worker
from trainer.evaluate import read_rollouts
from trainer.metrics import read_attempt
from trainer.profile import shipped_profiles
from trainer.spec import EvalReport, ModelRef, StageResult, StageSpec
from trainer.warm_start import main as warm_start


@pytest.fixture
def profile(tmp_path: Path) -> str:
    data = yaml.safe_load(shipped_profiles()["seedling"])
    data["generation"]["max_new_tokens"] = 6
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


def evaluation(profile: str, tiny: ModelRef, tmp_path: Path, **changes: str) -> list[str]:
    options = {
        "--model": tiny.path,
        "--profile": profile,
        "--environment": "toy:Toy",
        "--set": "anchor",
        "--directory": str(tmp_path / "out"),
    } | changes
    return ["evaluate", *(word for pair in options.items() for word in pair)]


def test_evaluate_writes_its_report_and_prints_cells(
    profile: str, tiny: ModelRef, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(evaluation(profile, tiny, tmp_path)) == 0
    report = EvalReport.model_validate_json((tmp_path / "out" / "anchor.eval.json").read_text())
    assert (report.n, report.set, report.model_sha256) == (10, "anchor", tiny.sha256)
    assert "macro" in capsys.readouterr().out
    assert main([*evaluation(profile, tiny, tmp_path), "--seed", "1"]) == 2
    assert "another evaluation" in capsys.readouterr().err


def test_evaluate_can_sample(profile: str, tiny: ModelRef, tmp_path: Path) -> None:
    assert main(evaluation(profile, tiny, tmp_path, **{"--samples": "3", "--temperature": "0.8", "--seed": "4"})) == 0
    report = EvalReport.model_validate_json((tmp_path / "out" / "anchor.eval.json").read_text())
    assert (report.n, report.samples, report.temperature, report.seed) == (10, 3, 0.8, 4)
    rows = read_rollouts(tmp_path / "out" / report.rollouts)
    assert len(rows) == 30
    assert len({row.answer for row in rows if row.id == rows[0].id}) > 1


def test_the_protocol_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schemas = json.loads(capsys.readouterr().out)
    assert list(schemas) == ["StageSpec", "StageResult", "SftSpec", "SftResult", "EvalReport"]
    assert main(["schema", "EvalReport"]) == 0
    assert json.loads(capsys.readouterr().out) == schemas["EvalReport"] == EvalReport.model_json_schema()
    with pytest.raises(SystemExit, match="2"):
        main(["schema", "Report"])


@pytest.mark.parametrize("change", [{"--model": "seedlng"}, {"--profile": "seedlng"}, {"--environment": "lagoon"}])
def test_bad_names_exit_with_2(
    profile: str, tiny: ModelRef, tmp_path: Path, change: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(evaluation(profile, tiny, tmp_path, **change)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_only_the_seedling_is_evaluated_without_a_profile(
    tiny: ModelRef, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--environment", "toy:Toy", "--directory", str(tmp_path / "out")]
    for asked in (["--model", tiny.path], ["--url", "http://127.0.0.1:1/v1", "--served-model", "m"]):
        assert main(["evaluate", *asked, *out]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{asked[0]} {asked[1]} needs a --profile, which says how prompts look")
        assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert main(["evaluate", "--model", "seedling", "--limit", "1", *out]) == 0


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("file", "--directory {} is a file or lies in one; name a directory\n"),
        ("file/out", "--directory {} is a file or lies in one; name a directory\n"),
        ("/proc/nope", "--directory '{}' cannot be used: No such file or directory; name another\n"),
        ("\0", "--directory {!r} cannot be used: embedded null byte; name another\n"),
    ],
)
def test_a_directory_that_cannot_be_is_one_line(
    *,
    make_spec: Callable[..., StageSpec],
    profile: str,
    tiny: ModelRef,
    tmp_path: Path,
    where: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "spec.json").write_text(make_spec().model_dump_json())
    directory = str(tmp_path / where)
    assert main(evaluation(profile, tiny, tmp_path, **{"--directory": directory})) == 2
    evaluated = capsys.readouterr().err
    assert main(["stage", "--spec", str(tmp_path / "spec.json"), "--directory", directory]) == 2
    trained = capsys.readouterr().err
    warmed = ["--profile", "smollm2-warm", "--model", "seedling", "--environment", "toy:Toy"]
    assert warm_start([*warmed, "--directory", directory]) == 2
    for said in (evaluated, trained, capsys.readouterr().err):
        assert said.splitlines(keepends=True)[-1] == says.format(directory)
    assert (tmp_path / "file").read_text() == "in the way"


def test_stage_prints_its_result(
    make_spec: Callable[..., StageSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(trainer.supervision, "WORKER", "fake_worker")
    directory = tmp_path / "000"
    directory.mkdir()
    (directory / "script.txt").write_text("done")
    path = tmp_path / "spec.json"
    path.write_text(make_spec().model_dump_json())
    arguments: list[Any] = ["stage", "--spec", str(path), "--directory", str(directory)]
    assert main(arguments) == 0
    assert StageResult.model_validate_json(capsys.readouterr().out).steps == 4
    path.write_text(make_spec(steps=9).model_dump_json())
    assert main(arguments) == 2
    path.write_text("{}")
    assert main(arguments) == 2


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_stage_that_is_told_to_stop_ends_with_75_and_leaves_no_worker(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: signal.Signals
) -> None:
    monkeypatch.setattr(trainer.supervision, "WORKER", "fake_worker")
    directory, before = tmp_path / "000", signal.getsignal(sign)
    directory.mkdir()
    (directory / "script.txt").write_text("hang done")
    path = tmp_path / "spec.json"
    path.write_text(make_spec().model_dump_json())

    def stop_at_step_3() -> None:
        while not any(row.step == 3 for row in read_attempt(directory / "attempt-1")):
            time.sleep(0.05)
        os.kill(os.getpid(), sign)

    thread = threading.Thread(target=stop_at_step_3, daemon=True)
    thread.start()
    arguments: list[Any] = ["stage", "--spec", str(path), "--directory", str(directory)]
    assert main(arguments) == 75
    thread.join()
    assert live_worker(directory / "attempt-1") is None
    assert signal.getsignal(sign) == before
    assert main(arguments) == 0


@pytest.mark.parametrize(
    "option",
    [("--samples", "0"), ("--samples", "-1"), ("--seed", str(10**40)), ("--limit", "-670"), ("--temperature", "nan")],
)
def test_numbers_out_of_range_are_refused(
    profile: str, tiny: ModelRef, tmp_path: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(evaluation(profile, tiny, tmp_path, **dict([option]))) == 2
    assert capsys.readouterr().err.startswith(f"{option[0]} is {option[1]}, expected ")


@pytest.mark.parametrize("grace", ["-5", "0", "nan", "86401"])
def test_a_grace_out_of_range_is_refused(
    make_spec: Callable[..., StageSpec], tmp_path: Path, grace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, directory = tmp_path / "spec.json", tmp_path / "000"
    path.write_text(make_spec().model_dump_json())
    assert main(["stage", "--spec", str(path), "--directory", str(directory), "--grace", grace]) == 2
    assert capsys.readouterr().err == f"--grace is {grace}, expected more than 0, up to 86,400\n"
    assert not directory.exists()


@pytest.mark.parametrize(
    "damage",
    [
        ("anchor.eval.json", b'{"schema_version": 1'),
        ("anchor.eval.json", b"\xff"),
        ("anchor.rollouts.jsonl", b"\xff\n"),
    ],
)
def test_damaged_evaluations_are_named(
    profile: str, tiny: ModelRef, tmp_path: Path, damage: tuple[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(evaluation(profile, tiny, tmp_path)) == 0
    capsys.readouterr()
    name, content = damage
    (tmp_path / "out" / name).write_bytes(content)
    assert main(evaluation(profile, tiny, tmp_path)) == 2
    printed = capsys.readouterr().err
    assert [line for line in printed.splitlines() if name in line and "remove it" in line]
    assert (tmp_path / "out" / name).read_bytes() == content


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (b"\xff\x00", "no UTF-8"),
        (b"[]", "is no stage spec"),
        (b"[" * 100_000, "is no stage spec"),
        ({"seed": -1}, "is no stage spec: seed = -1"),
        ({"schema_version": 99}, "is no stage spec: schema_version = 99"),
        ({"threads": 100_000}, "threads = 100000"),
        (b"", "is no stage spec: Invalid JSON: EOF while parsing a value"),
        (b"[1, 2]", "is no stage spec: the spec = [1, 2]: Input should be an object"),
        (b"{}", "; reward: Field required; "),
        ({"kind": "dpo"}, "is no stage spec: kind = 'dpo': expected 'grpo' or 'sft'"),
        ({"grpo": {"stpes": 1}}, "grpo.stpes = 1: Extra inputs are not permitted, did you mean 'steps'?"),
        ({"seeed": 1}, "spec: seeed = 1: Extra inputs are not permitted, did you mean 'seed'?"),
        (
            {"rollouts": {"kind": "vllm_server", "gpu": 1}},
            "gpu = 1: Extra inputs are not permitted, did you mean 'gpus'?",
        ),
        ({"rollouts": {"kind": "x"}}, "rollouts: Input tag 'x' found"),
        ({"grpo": {"steps": 1, "learning_rate": float("inf")}}, "grpo.learning_rate = inf"),
    ],
)
def test_bad_specs_are_refused_in_one_line(
    make_spec: Callable[..., StageSpec], tmp_path: Path, change: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, directory = tmp_path / "spec.json", tmp_path / "stage"
    data = make_spec().model_dump(mode="json")
    path.write_bytes(change if isinstance(change, bytes) else json.dumps(data | change).encode())
    assert main(["stage", "--spec", str(path), "--directory", str(directory)]) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert str(path) in printed
    assert printed.count("\n") == 1
    assert "http" not in printed
    assert not directory.exists()

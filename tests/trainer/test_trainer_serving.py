"""The life of a server that we start: how it comes up, what is said if it does not, and that none outlives its use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from many import TASKS, Many
from pydantic import ValidationError

from trainer.__main__ import main as evaluate_main
from trainer.attempts import process_started
from trainer.evaluate import EvaluationError, evaluate, read_rollouts, rollouts_path
from trainer.policy import OwnedPolicy, PolicyError
from trainer.profile import load_profile
from trainer.serving.__main__ import main
from trainer.serving.backends import ServedPolicy, open_policy
from trainer.serving.bench import measure
from trainer.serving.hold import read_held
from trainer.serving.server import LOG, RECORD, ServingError, end_orphan, interpreter, serving, start_server
from trainer.serving.settings import TransformersBackend, UrlBackend, VllmBackend, engine
from trainer.spec import GenerationSettings, ModelRef

HERE = Path(__file__).parent
MODEL = Path("some/model")
SAMPLED = GenerationSettings(max_new_tokens=8, temperature=1.0)


@pytest.fixture(autouse=True)
def _fake_vllm(_toy_in_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Server processes import the stand-in as vLLM."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE / "fake_vllm"), os.environ["PYTHONPATH"]]))


def backend(*arguments: str, **changes: Any) -> VllmBackend:
    return VllmBackend(**{"python": sys.executable, "start_seconds": 30, "arguments": arguments} | changes)


def served(directory: Path, *arguments: str, **changes: Any) -> ServedPolicy:
    policy: OwnedPolicy = open_policy(
        backend(*arguments, **changes),
        ModelRef(path=str(MODEL), sha256="m"),
        device="cpu",
        threads=1,
        batch_size=8,
        chat_template_kwargs={},
        directory=directory,
    )
    assert isinstance(policy, ServedPolicy)
    return policy


def gone(pid: int) -> bool:
    return process_started(pid) is None


def wait(condition: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_a_server_comes_up_is_written_down_and_ends_with_its_block(tmp_path: Path) -> None:
    with serving(MODEL, backend(), tmp_path) as server:
        pid = server.pid
        assert pid is not None
        assert os.getpgid(pid) == pid
        held = read_held(tmp_path / RECORD)
        assert held is not None
        assert (held.server.pid, held.server.started) == (pid, process_started(pid))
        said = (tmp_path / LOG).read_text()
    assert f"'--model', '{MODEL}'" in said
    assert "'--dtype', 'float32'" in said
    assert gone(pid)
    assert not (tmp_path / RECORD).exists()


def test_an_exception_ends_it_too(tmp_path: Path) -> None:
    pids: list[int | None] = []

    def fail() -> None:
        with serving(MODEL, backend(), tmp_path) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [pid] = pids
    assert pid is not None
    assert gone(pid)


def test_one_that_ends_before_it_is_healthy_is_told_of_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServingError, match=r"(?s)ended with exit code 7; the end of .*server\.log:.*no weights to be"),
        serving(MODEL, backend("--exits=7"), tmp_path),
    ):
        pytest.fail("it never became healthy")


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(ServingError, match=r"(?s)not healthy within 8 s; raise start_seconds.*arguments \["),
        serving(MODEL, backend("--deaf", start_seconds=8), tmp_path),
    ):
        pytest.fail("it never became healthy")
    assert time.monotonic() - began < 30
    assert not (tmp_path / RECORD).exists()


def test_one_that_ignores_schemas_is_refused_and_ended(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"ignores structured_outputs\.grammar: asked for 'ok-7f3'"):
        served(tmp_path, "--ignores")
    assert not (tmp_path / RECORD).exists()


HOLDER = """
import sys, time
from pathlib import Path
from trainer.serving.server import serving
from trainer.serving.settings import VllmBackend
with serving(Path("some/model"), VllmBackend(python=sys.executable), Path(sys.argv[1])):
    Path(sys.argv[1], "up").touch()
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process of ours that serves from the test's directory."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)])
    try:
        wait((tmp_path / "up").exists, seconds=60)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_whoever_started_it(tmp_path: Path, holder: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    held = read_held(tmp_path / RECORD)
    assert held is not None
    holder.send_signal(sign)
    wait(lambda: gone(held.server.pid))


def test_one_that_lost_its_leash_is_ended_by_its_record_and_a_live_one_is_not(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    held = read_held(tmp_path / RECORD)
    assert held is not None
    with pytest.raises(ServingError, match=f"process {held.holder.pid} serves from {tmp_path} already"):
        start_server(MODEL, backend(), tmp_path)
    os.kill(held.holder.pid, signal.SIGKILL)
    wait(lambda: gone(held.holder.pid))
    assert not gone(held.server.pid)
    end_orphan(tmp_path)
    assert gone(held.server.pid)
    assert not (tmp_path / RECORD).exists()


def test_the_interpreter_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServingError, match=r"backend.python is '/no/such/python', which cannot be run") as caught:
        interpreter(backend(python="/no/such/python"))
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ServingError, match=r"has no vllm; install it there .*backend\.python") as caught:
        interpreter(backend())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"arguments": ("--port=1",)}, "'--port=1' is set by us; expected none of --model"),
        ({"gpus": 0}, "greater than 0"),
        ({"pyton": "x"}, "Extra inputs"),
    ],
)
def test_settings_say_what_is_wrong(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        VllmBackend(**settings)
    with pytest.raises(ValidationError, match="base_url is 'localhost', expected one such as"):
        UrlBackend(base_url="localhost", model="m")


def test_what_decides_answers_is_the_identity_and_places_are_not() -> None:
    assert engine(TransformersBackend()) is None
    assert engine(backend("--enforce-eager")) == engine(backend("--enforce-eager", python="/other", concurrency=2))
    assert engine(backend("--enforce-eager")) != engine(backend())
    assert engine(backend(dtype="bfloat16")) != engine(backend())


def run(directory: Path, policy: OwnedPolicy, **changes: Any) -> Any:
    toy = Many()
    values: dict[str, Any] = {
        "set_name": "anchor", "model_sha256": "m", "style": "compact", "generation": SAMPLED, "directory": directory,
        "samples": 2, "seed": 3, "backend": {"kind": "vllm"},
    }  # fmt: skip
    return evaluate(policy, toy, toy.frozen_set("anchor"), **(values | changes))  # type: ignore[arg-type]


def asked(requests: Path) -> list[str]:
    return sorted(requests.read_text().splitlines())


def settled(base_url: str, requests: Path) -> int:
    """How many were asked once none is being answered of those that were when whoever asked was killed."""

    def idle() -> bool:
        with urlopen(f"{base_url}/open") as reply:
            return bool(reply.read() == b"1")

    wait(idle)
    return len(asked(requests))


def test_a_server_that_dies_in_the_middle_is_told_of_and_no_rollout_on_disk_is_repeated(tmp_path: Path) -> None:
    whole = served(tmp_path / "a", f"--requests={tmp_path / 'whole.jsonl'}", concurrency=4)
    report = run(tmp_path / "whole", whole)
    whole.close()
    mortal = served(tmp_path / "b", f"--requests={tmp_path / 'cut.jsonl'}", "--dies-after=40", concurrency=4)
    with pytest.raises(PolicyError, match=r"(?s)the vLLM server was killed by signal 9; the end of .*engine has died"):
        run(tmp_path / "cut", mortal)
    mortal.close()
    path = rollouts_path(tmp_path / "cut", "anchor")
    kept = path.read_bytes().count(b"\n") - 1
    # Of 40 answers those are missing whose other sample was under way.
    assert 40 - 2 * 4 <= kept <= 40
    again = served(tmp_path / "c", f"--requests={tmp_path / 'rest.jsonl'}", concurrency=4)
    resumed = run(tmp_path / "cut", again)
    assert len(asked(tmp_path / "rest.jsonl")) == 2 * TASKS - kept
    assert path.read_bytes() == rollouts_path(tmp_path / "whole", "anchor").read_bytes()
    assert resumed.model_dump(exclude={"seconds"}) == report.model_dump(exclude={"seconds"})
    seeds = set(asked(tmp_path / "whole.jsonl"))
    assert len(seeds) == 2 * TASKS
    assert set(asked(tmp_path / "cut.jsonl")) | set(asked(tmp_path / "rest.jsonl")) == seeds
    with pytest.raises(EvaluationError, match="another evaluation"):
        run(tmp_path / "cut", again, backend=None)
    again.close()


def test_a_killed_evaluation_by_url_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    with serving(MODEL, backend(f"--requests={requests}", "--seconds=0.05"), tmp_path / "server") as server:
        line = [
            *(sys.executable, "-m", "trainer", "evaluate", "--environment", "many:Many", "--set", "anchor"),
            *("--url", server.base_url, "--served-model", "policy", "--directory", str(tmp_path / "cut")),
            *("--samples", "2", "--temperature", "1", "--profile", "seedling"),
        ]
        path = rollouts_path(tmp_path / "cut", "anchor")
        killed = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait(lambda: path.exists() and path.read_bytes().count(b"\n") > 30, seconds=60)
        killed.kill()
        killed.wait()
        kept = path.read_bytes().count(b"\n") - 1
        with path.open("ab") as file:
            file.write('{"id": "toy-\u2028'.encode()[:-1])
        before = settled(server.base_url, requests)
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(asked(requests)) - before == 2 * TASKS - kept
    rows = read_rollouts(path)
    assert [(row.id, row.sample) for row in rows] == [(f"toy-{n}", s) for n in range(TASKS) for s in (0, 1)]


def test_a_server_can_be_started_by_hand_and_ends_in_order(tmp_path: Path, tiny: ModelRef) -> None:
    line = [
        *(
            sys.executable,
            "-m",
            "trainer.serving",
            "start",
            "--model",
            tiny.path,
            "--directory",
            str(tmp_path / "served"),
        ),
        *("--vllm", sys.executable, "--", "--requests", str(tmp_path / "requests.jsonl")),
    ]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(line, stdout=said, stderr=subprocess.STDOUT)
    try:
        wait(lambda: "the canary passed; stop it with Ctrl-C" in (tmp_path / "said").read_text(), seconds=90)
        held = read_held(tmp_path / "served" / RECORD)
        assert held is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert gone(held.server.pid)
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "said").read_text().splitlines()[-1] == "stopped"


def test_the_canary_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(MODEL, backend(), tmp_path / "a") as server:
        line = ["check", "--url", server.base_url, "--served-model", "policy"]
        assert main(line) == 0
    assert "to a JSON Schema" in capsys.readouterr().out
    with serving(MODEL, backend("--ignores"), tmp_path / "b") as server:
        assert main(["check", "--url", server.base_url, "--served-model", "policy"]) == 1
    assert "ignores response_format json_schema" in capsys.readouterr().err


def test_a_server_elsewhere_is_not_started_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.yaml"
    seedling = load_profile("seedling").model_dump(mode="json", exclude_unset=True)
    url = {"kind": "url", "base_url": "http://elsewhere/v1", "model": "m"}
    path.write_text(yaml.safe_dump({**seedling, "backend": url}), encoding="utf-8")
    assert main(["start", "--directory", str(tmp_path / "server"), "--profile", str(path)]) == 2
    said = capsys.readouterr().err
    assert "profile 'seedling' is answered by http://elsewhere/v1, which is started elsewhere" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "server").exists()


def test_a_server_that_never_answers_is_told_of_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/v1"
        assert main(["check", "--url", url, "--served-model", "m", "--seconds", "0.2"]) == 1
    said = capsys.readouterr().err
    assert said == f"the server at {url}/ gave no answer of model 'm' within 0.2 s; raise --seconds\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["start", "--directory", "x", "--profile", "seedlng"], "did you mean 'seedling'"),
        (["start", "--directory", "x", "--vllm", sys.executable, "--", "--port=1"], "'--port=1' is set by us"),
        (["agree", "--n", "0"], "--n is 0, expected 1 to"),
        (["bench", "--repeats", "0"], "--repeats is 0 and"),
        (["start", "--directory", "x", "--vllm", "/no/python"], "'/no/python', which cannot be run"),
        (["start", "--directory", __file__, "--vllm", sys.executable], "serving.py is a file or lies in one; name"),
        (["agree", "--n", "1", "--vllm", "/bin/ls"], "/bin/ls has no vllm"),
        (["bench", "--n", "1", "--vllm", "/no/python"], "'/no/python', which cannot be run"),
        (["check", "--url", "http://x/v1", "--served-model", "m", "--seconds", "nan"], "--seconds is nan, expected"),
        (["check", "--url", "foo", "--served-model", "m"], "--url is 'foo', expected one such as"),
        (["check", "--url", "ftp://x/v1", "--served-model", "m"], "--url is 'ftp://x/v1', expected one such as"),
    ],
)
def test_slips_on_the_command_line(line: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--url", "http://127.0.0.1:1/v1"], "--url and --served-model belong together"),
        (["--url", "http://x/v1", "--served-model", "m", "--vllm"], "--url and --vllm exclude each other"),
        (["--url", "http://x/v1", "--served-model", "m", "--model", "seedling"], "answers with its own 'm'"),
        (["--url", "http://x/v1", "--served-model", "m", "--shards", "2"], "by URL is not split into tasks, got 2"),
        (["--url", "localhost", "--served-model", "m"], "--url is 'localhost', expected one such as"),
        (["--url", "http://x/v1", "--served-model", ""], "model = '': String should have at least 1 character"),
        (["--vllm", "/no/python"], "'/no/python', which cannot be run"),
        (["--vllm", "/bin/ls"], "/bin/ls has no vllm"),
        (["--vllm", "/bin/ls", "--shards", "2"], "/bin/ls has no vllm"),
    ],
)
def test_slips_of_an_evaluation(tmp_path: Path, line: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["--environment", "many:Many", "--profile", "seedling", "--directory", str(tmp_path / "out")]
    assert evaluate_main(["evaluate", *fixed, *line]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_back_ends_are_timed_on_the_same_prompts(tmp_path: Path, tiny: ModelRef) -> None:
    profile = load_profile("seedling")
    profile = profile.model_copy(update={"generation": GenerationSettings(max_new_tokens=6)})
    prompts = [Many().prompt(instance, "compact") for instance in Many().frozen_set("anchor")[:12]]
    speeds = measure(profile, tiny, backend(), prompts, temperature=0.0, repeats=2, directory=tmp_path)
    assert [speed.engine for speed in speeds] == ["generate", "lean", "vllm"]
    # Greedy, so that the two engines that run the model generate the same tokens; the stand-in says two each.
    assert speeds[0].tokens == speeds[1].tokens > 12
    assert speeds[2].tokens == 24
    assert all(speed.rollouts == 12 and speed.seconds > 0 and speed.spread >= 1 for speed in speeds)
    assert "'--no-enable-prefix-caching'" in (tmp_path / LOG).read_text()

"""Launching without a cluster: settings, presets, local tasks, and an evaluation split into parts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from toy import Toy

from trainer.evaluate import evaluate, rollouts_path
from trainer.launch.contract import LaunchError, Resources, Task, stage_resources
from trainer.launch.follow import finish
from trainer.launch.local import LocalLauncher
from trainer.launch.places import launcher
from trainer.launch.presets import presets
from trainer.launch.ranks import arguments_for
from trainer.launch.serving import fate, serve_line, split_gpus, start
from trainer.launch.settings import LaunchSettings
from trainer.launch.shard import EvaluationPlan
from trainer.launch.sharded import ShardedPolicy
from trainer.profile import ProfileError, load_profile, shipped_profiles
from trainer.serving.health import ServingError, free_port, wait_healthy
from trainer.spec import GenerationSettings, ModelRef, Ranks, StageSpec, VllmServer
from trainer.stage import StageInputError, check_spec


def profile_with(tmp_path: Path, base: str, **sections: Any) -> Path:
    data = yaml.safe_load(shipped_profiles()[base]) | sections
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
    return path


@pytest.mark.parametrize(
    ("base", "sections", "message"),
    [
        ("seedling", {"launch": {"preset": "cpuu"}}, "no preset 'cpuu', did you mean 'cpu'"),
        ("seedling", {"launch": {"preset": "cpu", "where": "rya"}}, "no launcher 'rya', did you mean 'ray'"),
        ("seedling", {"launch": {"presett": "cpu"}}, "did you mean 'preset'"),
        ("seedling", {"launch": {"processes": 2}}, "processes is 2 but there is no preset"),
        ("seedling", {"launch": {"ray": {}}}, "a ray section but where is 'local'"),
        ("seedling", {"launch": {"where": "ray", "ray": {"adress": "auto"}}}, "did you mean 'address'"),
        ("seedling", {"launch": {"preset": "cpu", "processes": 3}}, "grpo.batch 128 is no multiple of 3 processes x"),
        ("seedling", {"launch": {"preset": "1gpu"}}, "preset 1gpu needs device cuda, got cpu"),
        ("seedling", {"rollouts": {"kind": "vllm_server"}}, "rollouts vllm_server need device cuda, got cpu"),
        ("qwen3-4b", {"rollouts": {"kind": "vllm_server"}}, "rollouts vllm_server need launch.preset server"),
        ("qwen3-4b", {"launch": {"preset": "cpu"}}, "preset cpu needs device cpu, got cuda"),
        ("qwen3-4b", {"launch": {"preset": "1gpu", "processes": 2}}, "launch.processes is 2, expected 1 to 1"),
        ("qwen3-4b", {"launch": {"preset": "1gpu-lora"}}, "trains adapters, but there is no lora section"),
        ("qwen3-4b", {"launch": {"preset": "1gpu"}, "lora": {}}, "trains all weights, but there is a lora section"),
        ("qwen3-4b", {"launch": {"preset": "server"}}, "preset server needs rollouts vllm_server, got vllm_colocate"),
        (
            "qwen3-4b",
            {"launch": {"preset": "ngpu-colocate"}, "rollouts": {"kind": "vllm_server"}},
            "needs rollouts vllm_colocate, got vllm_server; TRL sends weights to a server over NCCL",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    tmp_path: Path, base: str, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile(profile_with(tmp_path, base, **sections))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "sections", "processes"),
    [
        ("seedling", {"launch": {"preset": "cpu", "processes": 2}}, 2),
        ("qwen3-4b", {"launch": {"preset": "1gpu"}}, 1),
        ("qwen3-4b", {"launch": {"preset": "1gpu-lora"}, "lora": {"rank": 8}}, 1),
        ("qwen3-4b", {"launch": {"preset": "ngpu-colocate", "processes": 4}}, 4),
        ("qwen3-4b", {"launch": {"preset": "ngpu-colocate"}}, 8),
        ("qwen3-4b-8gpu", {}, 8),
        ("qwen3-4b", {"launch": {"preset": "server", "processes": 4}, "rollouts": {"kind": "vllm_server"}}, 4),
    ],
)
def test_what_can_work_is_taken(tmp_path: Path, base: str, sections: dict[str, Any], processes: int) -> None:
    ranks = load_profile(profile_with(tmp_path, base, **sections)).ranks()
    assert ranks is not None
    assert ranks.processes == processes
    if sections:
        assert ranks.preset == sections["launch"]["preset"]


def test_without_a_launch_section_nothing_is_said_of_one() -> None:
    """So that run.yaml and the identity of a stage are what they were before there were launchers."""
    for name in ("seedling", "smollm2"):
        profile = load_profile(name)
        assert "launch" not in profile.model_dump(mode="json")
        assert profile.ranks() is None


def test_a_run_may_go_on_at_another_place_but_not_with_other_processes(tmp_path: Path) -> None:
    def content(**launch: Any) -> dict[str, Any]:
        return load_profile(profile_with(tmp_path, "seedling", launch=launch or None)).content()

    assert content() == load_profile("seedling").model_dump(mode="json")
    assert content(where="ray", shards=4, ray={"address": "h:1"}) == content()
    assert content(preset="cpu", processes=2, where="ray") == content(preset="cpu", processes=2)
    assert content(preset="cpu", processes=2) != content(preset="cpu", processes=4) != content()


def test_processes_are_part_of_what_a_stage_is(make_spec: Any) -> None:
    one, two = make_spec(), make_spec(ranks=Ranks(preset="cpu", processes=2))
    assert "ranks" not in one.model_dump(mode="json")
    assert one.identity() != two.identity()
    assert (stage_resources(one), stage_resources(two)) == (Resources(cpus=1), Resources(cpus=2))
    assert StageSpec.model_validate_json(two.model_dump_json()) == two


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (Ranks(preset="cqu", processes=1), "no preset 'cqu', did you mean 'cpu'"),
        (Ranks(preset="cpu", processes=8), "no multiple of 8 processes x grpo.micro_batch 8"),
    ],
)
def test_a_spec_of_anybody_is_checked_too(make_spec: Any, ranks: Ranks, message: str) -> None:
    with pytest.raises(StageInputError, match=message):
        check_spec(make_spec(ranks=ranks))


def test_every_preset_makes_a_line_that_its_launcher_takes() -> None:
    from accelerate.commands.launch import launch_command_parser  # noqa: PLC0415  a second to import
    from torch.distributed.run import parse_args  # noqa: PLC0415

    for name, preset in presets().items():
        line = arguments_for(name, preset.processes.usual, "trainer.worker", ["--spec", "s"])
        if preset.accelerate is None:
            parsed = parse_args(line)
            assert (parsed.nproc_per_node, parsed.module) == (str(preset.processes.usual), True)
        else:
            parsed = launch_command_parser().parse_args(line)
            configuration = yaml.safe_load(Path(parsed.config_file).read_text())
            assert (parsed.num_processes, parsed.module) == (preset.processes.usual, True)
            assert configuration["num_machines"] == 1
            stage = configuration.get("deepspeed_config", {}).get("zero_stage")
            assert stage == (2 if preset.processes.most > 1 else None)
        assert parsed.training_script == "trainer.worker"
        assert parsed.training_script_args == ["--spec", "s"]


def test_a_worker_without_its_peers_refuses(make_spec: Any, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(make_spec(ranks=Ranks(preset="cpu", processes=2)).model_dump_json())
    line = ["-m", "trainer.worker", "--spec", str(spec), "--directory", str(tmp_path / "000" / "attempt-1")]
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the spec asks for 2 processes, got 1; start the stage by python -m trainer stage" in done.stderr
    assert not (tmp_path / "000" / "result.json").exists()


def served(make_spec: Any, **changes: Any) -> StageSpec:
    spec: StageSpec = make_spec(device="cuda", rollouts=VllmServer(gpus=2), **changes)
    return spec


def test_the_server_is_what_the_stage_is_and_gets_the_last_gpus(make_spec: Any) -> None:
    line = serve_line(served(make_spec), 8101)
    assert line[line.index("--model") + 1] == make_spec().init_model.path
    assert line[line.index("--port") + 1] == "8101"
    assert line[line.index("--tensor-parallel-size") + 1] == "2"
    assert json.loads(line[line.index("--weight-transfer-config") + 1]) == {"backend": "nccl"}
    assert split_gpus(["0", "1", "4", "5", "7"], 3, 2) == (["0", "1", "4"], ["5", "7"])
    with pytest.raises(ServingError, match="needs 5 GPUs, 3 to train and 2 to serve, got 4"):
        split_gpus(["0", "1", "2", "3"], 3, 2)
    assert stage_resources(served(make_spec, ranks=Ranks(preset="server", processes=3))).gpus == 5


def test_a_server_is_waited_for_and_ends_with_whoever_started_it(tmp_path: Path) -> None:
    (tmp_path / "health").touch()
    port = free_port()
    line = ["-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    server = start(line, {})
    wait_healthy(partial(fate, server), f"http://127.0.0.1:{port}", seconds=20)
    server.terminate()
    assert server.wait(timeout=20) != 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    with pytest.raises(ServingError, match="ended with 3; what it said is above"):
        wait_healthy(partial(fate, start(["-c", "raise SystemExit(3)"], {})), f"http://127.0.0.1:{port}", seconds=20)


def task(tmp_path: Path, code: str, *arguments: str) -> Task:
    return Task(name="a task", arguments=("-c", code, *arguments), log=tmp_path / "log")


def test_a_task_leaves_its_words_and_its_code(tmp_path: Path) -> None:
    job = LocalLauncher().start(task(tmp_path, "print('hello'); raise SystemExit(7)"))
    while (code := job.poll()) is None:
        time.sleep(0.01)
    assert (code, (tmp_path / "log").read_text()) == (7, "hello\n")


def test_a_killed_task_starts_again_and_one_that_fails_does_not(tmp_path: Path) -> None:
    once = (
        "import os, sys, pathlib as p; m = p.Path(sys.argv[1]); n = m.exists(); m.touch(); n or os.kill(os.getpid(), 9)"
    )
    finish(LocalLauncher(), [task(tmp_path, once, str(tmp_path / "mark"))])
    always = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(LaunchError, match="a task was killed by signal 9"):
        finish(LocalLauncher(), [task(tmp_path, always)])
    with pytest.raises(LaunchError, match=r"(?s)a task ended with exit code 1.*out of luck"):
        finish(
            LocalLauncher(),
            [task(tmp_path, "raise SystemExit('out of luck')"), task(tmp_path, "import time; time.sleep(60)")],
        )


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_leash_ends_with_its_holder(tmp_path: Path, sign: signal.Signals) -> None:
    """The holder dies as a Ray worker does; what it ran on the leash must not go on."""
    pid = tmp_path / "pid"
    sleeper = f"import os, time, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(60)"
    holder = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-m', 'trainer.launch.leash', '-c', {sleeper!r}])"
    )
    job = LocalLauncher().start(task(tmp_path, holder))
    wait(lambda: pid.exists() and pid.read_text())
    process = Path("/proc") / pid.read_text()
    assert process.exists()
    if sign == signal.SIGKILL:
        os.kill(job.pid, sign)
    else:
        job.stop()
    wait(lambda: not process.exists())


@pytest.mark.parametrize(("grace", "takes", "ends"), [("0.2", 60, b""), ("20", 1, b"in peace")])
def test_a_leash_gives_the_grace_that_it_is_told(tmp_path: Path, grace: str, takes: int, ends: bytes) -> None:
    slow = (
        "import pathlib, signal, sys, time\n"
        "asked = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "while not asked: time.sleep(0.01)\n"
        f"time.sleep({takes}); print('in peace', end='', flush=True)"
    )
    command = [sys.executable, "-m", "trainer.launch.leash", "--grace", grace, "-c", slow]
    leash = subprocess.Popen(command, stdout=subprocess.PIPE)
    wait((tmp_path / "ready").exists)
    leash.terminate()
    said, _ = leash.communicate(timeout=50)
    assert said == ends
    assert leash.returncode == (0 if ends else -signal.SIGKILL)


def test_a_profile_says_what_grace_its_tasks_have() -> None:
    assert launcher(LaunchSettings(grace_seconds=240)).grace_seconds == 240
    assert launcher(None).grace_seconds == launcher(LaunchSettings()).grace_seconds == 10
    for name in ("qwen3-4b", "qwen3-4b-8gpu"):
        settings = load_profile(name).launch
        assert settings is not None
        assert settings.grace_seconds == 240
    with pytest.raises(ValidationError, match="greater than 0"):
        LaunchSettings(grace_seconds=0)


def wait(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_the_parts_of_an_evaluation_are_the_whole(tmp_path: Path, toy: Toy, tiny: ModelRef) -> None:
    instances = toy.instances(300)
    plan = EvaluationPlan(
        environment="toy:Toy",
        style="compact",
        set="many",
        model=tiny,
        generation=GenerationSettings(max_new_tokens=4, temperature=1.0),
        samples=2,
        seed=3,
        device="cpu",
        threads=1,
        batch_size=64,
    )
    shown: list[int] = []
    sharded = ShardedPolicy(
        LocalLauncher(),
        plan,
        toy,  # type: ignore[arg-type]
        instances,
        directory=tmp_path / "parts",
        shards=2,
        progress=lambda done, _: shown.append(done),
    )
    reports = {}
    for name, policy in (("whole", plan.policy(tmp_path)), ("parts", sharded)):
        reports[name] = evaluate(
            policy,
            toy,  # type: ignore[arg-type]
            instances,
            set_name="many",
            model_sha256=tiny.sha256,
            style="compact",
            generation=plan.generation,
            directory=tmp_path / name,
            samples=2,
            seed=3,
        )
    files = [rollouts_path(tmp_path / name, "many").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]
    assert reports["whole"].model_dump(exclude={"seconds"}) == reports["parts"].model_dump(exclude={"seconds"})
    # Three chunks in two tasks.
    assert {path.name for path in (tmp_path / "parts" / "many.shards").iterdir()} == {
        "instances.jsonl",
        "0-128",
        "128-300",
    }
    assert shown[-1] == 300
    sharded.close()
    assert not (tmp_path / "parts" / "many.shards").exists()

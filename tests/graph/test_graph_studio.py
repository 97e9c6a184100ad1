"""LangGraph Studio's server on a run directory: the real `langgraph dev`, over HTTP, without a key."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from langgraph.checkpoint.memory import InMemorySaver
from loops import LOOSE, environment, until, workers
from offline import offline
from pydantic import ValidationError
from served import PATIENCE, Served, nodes_of, served, streamed, waits

from graph import serve, studio
from graph.build import recursion_limit
from graph.context import RunContext
from graph.exits import Exit
from graph.lock import STUDIO, locked
from graph.report_state import sessions
from graph.rundir import RunDir, open_directory
from graph.runs_found import read_run
from graph.settings import RunSettings, SettingsError

ROOT = Path(__file__).parents[2]
TOPOLOGY = Path(__file__).parent / "topology.mmd"
DESIGNED = ["evidence", "failure_analyst", "config_designer", "gates", "safety_critic"]
DECIDED = ["settle", "trainer", "dataset", "train", "evaluate", "accept_or_roll_back"]


@pytest.fixture
def settings(tmp_path: Path, profile: Path) -> Path:
    path = tmp_path / "settings.yaml"
    data = {"environment": "parity:Parity", "profile": str(profile), "stages": 1, "designer": "fixed", "gates": LOOSE}
    path.write_text(yaml.safe_dump(data | {"approval": "always"}))
    return path


def command_line(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graph.run", *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )


def test_the_repository_and_the_package_configure_the_server_alike() -> None:
    assert json.loads((ROOT / "langgraph.json").read_text()) == serve.CONFIGURATION


def test_the_server_neither_reloads_nor_takes_one_run_at_a_time(tmp_path: Path) -> None:
    line = serve.command(2024, tmp_path / "langgraph.json")
    assert {"--no-reload", "--no-browser", "-P"} <= set(line)
    assert int(line[line.index("--n-jobs-per-worker") + 1]) > 1


def test_the_graph_that_is_shown_has_no_checkpointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that brings its own keeps the server from starting."""
    monkeypatch.setenv(studio.RUN_DIR, str(tmp_path))
    shown = studio.drawn()
    assert shown.checkpointer is None
    assert shown.get_graph().draw_mermaid() == TOPOLOGY.read_text()


def test_the_drawing_in_the_docs_is_the_graph() -> None:
    assert f"```mermaid\n{TOPOLOGY.read_text()}```" in (ROOT / "docs/studio.md").read_text()


def test_records_of_another_run_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server re-queues what it had not finished; that must not begin in another run's directory."""
    monkeypatch.chdir(tmp_path)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    studio.claim_records(one)
    studio.claim_records(one)
    with pytest.raises(SettingsError, match=f"are of {one}, and {other} is to be opened"):
        studio.claim_records(other)
    with locked(one, STUDIO):
        for taken_by in (serve.forget_others, studio.claim_records):
            with pytest.raises(SettingsError, match=f"started in {tmp_path} has {one} open .LangGraph Studio's server"):
                taken_by(other)
    assert studio.recorded_run() == one
    serve.forget_others(other)
    assert studio.recorded_run() is None


@pytest.mark.parametrize("name", [name for name in RunContext.model_fields if name != "config"])
def test_the_context_has_the_bounds_of_the_settings(name: str) -> None:
    offered = RunContext.model_json_schema()["properties"][name]
    meant = RunSettings.model_json_schema()["properties"][name]
    bounds = {key: value for key, value in meant.items() if key not in ("title", "default", "description")}
    # Of what may be a name or a mapping, the form takes the name.
    assert offered["anyOf"][0] == bounds.get("anyOf", [bounds])[0]
    assert meant["description"] in offered["description"]


def test_what_a_form_leaves_empty_is_not_said() -> None:
    assert RunContext.model_validate({"designer": "", "stages": None, "seed": 3}).overrides() == {"seed": 3}
    with pytest.raises(ValidationError):
        RunContext.model_validate({"stagess": 1})


async def test_a_loop_that_escapes_its_counter_ends_in_the_server_too(
    tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studio, "_served", [studio.Open(open_directory(tmp_path / "run"), InMemorySaver())])
    runtime: Any = SimpleNamespace(execution_runtime=SimpleNamespace(context=RunContext(config=str(settings))))
    async with studio.graph({"configurable": {"thread_id": "1"}}, runtime) as served_graph:
        assert served_graph.config is not None
        assert served_graph.config["recursion_limit"] == recursion_limit(1, RunSettings().max_revisions)


@pytest.fixture
def cut_off(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """No network but this machine's loopback, where the user may ask for that; else only no way to a proxy."""
    with offline() as really:
        record_property("offline", really)
        yield


@pytest.mark.loop
@pytest.mark.usefixtures("cut_off")
def test_a_run_from_its_first_thread_to_its_forks(tmp_path: Path, settings: Path) -> None:
    """All of it without a network and without a key."""
    root = tmp_path / "run"
    with served(tmp_path, root) as server:
        see_schemas_and_drawing(server)
        thread = server.client.threads.create()["thread_id"]
        given: dict[str, Any] = {"context": {"config": str(settings)}}
        begun = streamed(server, thread, input={}, **given)
        assert nodes_of(begun)[-6:] == [*DESIGNED, "__interrupt__"]
        assert {mode for mode, _ in begun} >= {"updates", "custom", "tasks"}
        said = {name: update for mode, data in begun if mode == "updates" for name, update in data.items()}
        assert said["safety_critic"]["review"] == "approve", "the server leaves nothing of an update out"
        told = [data for mode, data in begun if mode == "custom"]
        assert any(one.get("what") == "training stage 000" and one["done"] == one["total"] for one in told)
        assert {one["role"] for one in told if one["event"] == "said"} >= {"failure_analyst", "safety_critic"}
        assert waits(server.client.threads.get_state(thread))["stage"] == 1
        answer_in_no_words(server, thread, given)
        assert read_run(root).state == "waiting"

        assert command_line(tmp_path, "--run-dir", root, "--resume").returncode == Exit.BAD_INPUT, "Studio has the lock"

        mine = {"changes": [{"path": "short.data_ratio", "op": "up"}], "rationale": "mine"}
        edited = streamed(server, thread, command={"resume": mine}, **given)
        assert nodes_of(edited) == ["approval", "gates", "approval", *DECIDED, "report"]
        run = RunDir(root)
        plan = run.read("stages/001/plan.json")
        assert [one.how for one in sessions(run.events())].count("failed") == 0
        assert (plan["source"], plan["own"], plan["reason"]) == ("person", False, "mine")
        weights = run.read("stages/001/result.json")["model"]["sha256"]

        fork_before_the_word(server, thread, root, given)
        assert run.read("branches/1/stages/001/result.json")["model"]["sha256"] == weights, "nothing is lost"
        assert run.read("branches/1/stages/001/plan.json")["source"] == "person", "nor how it came to it"
        assert run.exists("branches/1/stages/001/dataset.jsonl")
        cancel_while_training(server, thread, root, given)
    assert server.process.returncode == 0, server.log.read_text()
    assert workers(root) == []
    done = command_line(tmp_path, "--run-dir", root, "--resume")
    assert done.returncode == Exit.DONE, done.stdout
    assert run.read("stages/001/plan.json")["source"] == "reused"


def see_schemas_and_drawing(server: Served) -> None:
    schemas = server.client.assistants.get_schemas(server.assistant())
    assert schemas["input_schema"] is not None
    assert not schemas["input_schema"].get("properties")
    assert set(schemas["state_schema"]["properties"]) >= {"stage", "revision", "review", "current", "champion"}
    assert schemas["output_schema"]["properties"].keys() == schemas["state_schema"]["properties"].keys()
    assert schemas["context_schema"] is not None
    assert all(field["description"] for field in schemas["context_schema"]["properties"].values())
    drawn = server.client.assistants.get_graph(server.assistant())
    roles = {node["id"]: node["metadata"] for node in drawn["nodes"] if node.get("metadata", {}).get("kind") == "role"}
    assert set(roles) == {"failure_analyst", "config_designer", "safety_critic", "trainer"}
    assert all(node["description"] for node in roles.values())


def answer_in_no_words(server: Served, thread: str, given: dict[str, Any]) -> None:
    """A word that is none is no failure: the question comes back with what was wrong, until there is one."""
    for said in ("maybe", 42):
        again = streamed(server, thread, command={"resume": said}, **given)
        assert nodes_of(again) == ["__interrupt__"]
        question = waits(server.client.threads.get_state(thread))
        assert question["error"].startswith(f"the answer {said!r} is none; expected true, false, or")
    assert nodes_of(streamed(server, thread, input=None, **given)) == ["__interrupt__"]


def fork_before_the_word(server: Served, thread: str, root: Path, given: dict[str, Any]) -> None:
    """Back to where the proposal waited: it waits again, and the other answer gives another stage."""
    history = server.client.threads.get_history(thread, limit=100)
    [point] = [one for one in history if one["next"] == ["approval"] and one["values"]["revision"] == 0]
    server.client.threads.update_state(thread, {"why": "once more"}, checkpoint=point["checkpoint"])
    again = streamed(server, thread, input=None, **given)
    assert nodes_of(again) == ["__interrupt__"]
    assert not (root / "stages/001/decision.json").exists()
    refused = streamed(server, thread, command={"resume": "no"}, **given)
    assert nodes_of(refused)[0] == "approval"
    assert nodes_of(refused)[-1] == "report"
    assert RunDir(root).read("stages/001/plan.json")["reason"] == "rejected by a person"


def cancel_while_training(server: Served, thread: str, root: Path, given: dict[str, Any]) -> None:
    history = server.client.threads.get_history(thread, limit=100)
    point = next(one for one in history if one["next"] == ["train"] and one["values"]["stage"] == 1)
    run = server.client.runs.create(thread, "envwright", input=None, checkpoint=point["checkpoint"], **given)
    until(lambda: workers(root))
    other = server.client.threads.create()["thread_id"]
    [(mode, said)] = [part for part in streamed(server, other, input={}, **given) if part[0] == "error"]
    assert (mode, "another thread works on" in json.dumps(said)) == ("error", True), said
    server.client.runs.cancel(thread, run["run_id"], wait=True)
    # The run's own status says interrupted at once; the thread's only when the node has ended.
    until(lambda: server.client.threads.get(thread)["status"] != "busy")
    assert workers(root) == []
    assert server.client.threads.get(thread)["status"] == "interrupted"
    told = read_run(root)
    assert told.state == "drained", "the server has it open and does nothing"
    assert told.holder is not None
    assert told.holder.what == STUDIO


@pytest.mark.loop
@pytest.mark.parametrize(("how", "attempts"), [(signal.SIGKILL, 1), (signal.SIGTERM, 2)], ids=["killed", "ended"])
def test_what_the_command_line_began_goes_on_in_studio(
    straight: tuple[Path, Path], tmp_path: Path, how: signal.Signals, attempts: int
) -> None:
    """Also with a thread of a fork, which does not lead through what the fork took over; and a server that ended while
    a stage trained goes on with it once it is started again, without being asked."""
    root, config = tmp_path / "run", tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"designer": "fixed", "gates": LOOSE, "approval": "always"}))
    fork = ("--fork-from", straight[1], "--at-stage", 1)
    begun = command_line(tmp_path, *fork, "--config", config, "--run-dir", root)
    assert begun.returncode == Exit.WAITING, begun.stdout + begun.stderr
    (tmp_path / "agents.py").write_text("raise SystemExit('a file of this name hid the package')")
    with served(tmp_path, root) as server:
        [thread] = server.client.threads.search(metadata={"graph_id": "envwright"})
        state = server.client.threads.get_state(thread["thread_id"])
        question = waits(state)
        assert question["proposal"] == RunDir(root).read("stages/001/proposals/0/proposal.json")["parsed"]
        assert len(server.client.threads.get_history(thread["thread_id"], limit=50)) > 5
        mine = server.client.threads.create()["thread_id"]
        assert nodes_of(streamed(server, mine, input={})) == ["baseline", *DESIGNED, "__interrupt__"]
        run = server.client.runs.create(thread["thread_id"], "envwright", command={"resume": True})
        until(lambda: workers(root))
        server.stop(how)
    # The worker has a session of its own and outlives a kill; the next server finds it at work.
    with served(tmp_path, root) as server:
        known = [one["run_id"] for one in server.client.runs.list(thread["thread_id"])]
        if how == signal.SIGTERM or run["run_id"] in known:
            until(lambda: server.client.runs.get(thread["thread_id"], run["run_id"])["status"] in ("success", "error"))
        else:
            # The server writes its records every ten seconds, and was killed before it had noted this run.
            nodes_of(streamed(server, thread["thread_id"], input=None))
        assert server.client.threads.get_state(thread["thread_id"])["next"] == []
    assert RunDir(root).read("result.json")["sets"]
    assert RunDir(root).read("stages/001/plan.json")["source"] == "fixed"
    assert len(list(root.glob("stages/001/attempt-*"))) <= attempts


@pytest.mark.parametrize(
    ("port", "words"), [("0", "expected 1..65535"), ("99999", "expected 1..65535"), ("busy", "give another")]
)
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], port: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = serve.main(
            ["--run-dir", str(tmp_path / "run"), "--port", str(taken.getsockname()[1]) if port == "busy" else port]
        )
    assert code == Exit.BAD_INPUT
    assert words in capsys.readouterr().err

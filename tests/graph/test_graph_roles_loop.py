"""Tiny whole runs with roles of a user: notes, another critic, an approval, roles that are off, tools before a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import role_sets
import yaml
from listening import answering
from loops import LOOSE
from role_sets import HISTORIAN, with_historian, write_role

from envsim.api import Message
from graph import run, speaking
from graph.exits import Exit
from graph.rundir import RunDir
from graph.summary import token_table, tokens_read
from trainer.serving import client

pytestmark = pytest.mark.loop

Start = Callable[..., tuple[int, RunDir]]


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(role, what it was asked) in order, as the real renderer gives it."""
    seen: list[tuple[str, str]] = []
    real = speaking.render_messages

    def render(role: Any, style: Any, inputs: Any) -> list[Message]:
        messages = real(role, style, inputs)
        seen.append((role.name, messages[-1]["content"]))
        return messages

    monkeypatch.setattr(speaking, "render_messages", render)
    return seen


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[str]]]:
    """What each role spoke with: its file's word, and the checkpoints that this means."""
    seen: list[tuple[Any, list[str]]] = []
    real = speaking.chat_model

    def chat_model(spec: Any, policies: Any) -> Any:
        seen.append((spec, [policy.ref.sha256 for policy in policies.values()]))
        return real(spec, policies)

    monkeypatch.setattr(speaking, "chat_model", chat_model)
    return seen


@pytest.fixture
def start(tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """One run in this process, from its settings file on; with flags, that run goes on."""
    monkeypatch.setenv("PYTHONPATH", str(Path(role_sets.__file__).parent))
    monkeypatch.setenv("COLUMNS", "200")

    def started(roles: Path, *flags: str, **changes: Any) -> tuple[int, RunDir]:
        data = {"environment": "parity:Parity", "profile": str(profile), "roles": str(roles), "stages": 1}
        config = tmp_path / "settings.yaml"
        config.write_text(yaml.safe_dump(data | changes))
        root = tmp_path / "run"
        return run.main(["--run-dir", str(root), *(flags or ("--config", str(config)))]), RunDir(root)

    return started


def asked(prompts: list[tuple[str, str]], role: str) -> list[str]:
    return [text for name, text in prompts if name == role]


def test_what_a_historian_writes_is_in_the_designers_prompt_and_in_the_events(
    tmp_path: Path, start: Start, prompts: list[tuple[str, str]]
) -> None:
    folder = with_historian(tmp_path / "roles")
    code, found = start(folder)
    assert code == Exit.DONE
    note = found.read("stages/001/notes/curriculum_history.json")
    assert (note["by"], note["fallback"]) == ("curriculum_historian", False)
    trend, advice = note["parsed"]["trend"], note["parsed"]["advice"]
    [said] = [event for event in found.events() if event["event"] == "said" and event["role"] == "curriculum_historian"]
    assert (said["text"], said["fallback"]) == (f"trend: {trend}; advice: {advice}", False)
    assert asked(prompts, "curriculum_historian") == ["stages 0"]
    designer = asked(prompts, "config_designer")
    assert designer
    assert all(text.endswith(f"history {trend} {advice}") for text in designer)
    nodes = [event["node"] for event in found.events() if event["event"] == "node" and event["stage"] == 1]
    assert nodes[:4] == ["evidence", "curriculum_historian", "failure_analyst", "config_designer"]
    # Another set of roles is another run.
    write_role(folder, "curriculum_historian", **HISTORIAN | {"description": "Another."})
    assert start(folder, "--resume")[0] == Exit.BAD_INPUT


APPROVAL = {"reason": "as the evidence says", "verdict": "approve", "conditions": []}


@pytest.fixture
def judge() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that approves whatever it is asked about: its URL, and the requests that it got."""
    with answering(json.dumps(APPROVAL), read=7, wrote=5) as found:
        yield found


def test_another_critic_an_approval_a_role_that_is_off_and_roles_that_are_code(
    tmp_path: Path,
    start: Start,
    judge: tuple[str, list[dict[str, Any]]],
    prompts: list[tuple[str, str]],
    models: list[tuple[Any, list[str]]],
) -> None:
    url, requests = judge
    folder = with_historian(tmp_path / "roles", model="base")
    model = {"base_url": url, "name": "judge"}
    write_role(folder, "safety_critic", model=model, approval="always")
    write_role(folder, "failure_analyst", enabled=False)
    write_role(folder, "trainer", enabled=False)
    code_role = {key: value for key, value in HISTORIAN.items() if key != "prompt"} | {"kind": "python"}
    code_role["place"] = {"after": ["gates"], "before": ["safety_critic"]}
    functions = ("note_by_code", "raises", "talks")
    for name in functions:
        entry = {"name": name, "writes": f"said_{name}", "entrypoint": f"role_sets:{name}"}
        write_role(folder, name, **code_role | entry)
    looker = HISTORIAN | {"name": "looker", "writes": "what_it_saw", "place": {"after": ["curriculum_historian"]}}
    looker |= {"tools": ["read_history"], "limits": {"max_tool_calls": 2}}
    write_role(folder, "looker", **looker)
    code, found = start(folder, gates=LOOSE)
    assert code == Exit.WAITING
    # The historian speaks with the checkpoint that the run began with.
    assert [shas for spec, shas in models if spec == "base"] == [
        [yaml.safe_load(found.path("run.yaml").read_text())["start_sha256"]]
    ]
    calls = [event for event in found.events() if event["event"] == "tool" and event.get("role") == "looker"]
    kept = found.read("stages/001/notes/what_it_saw.json")["tool_calls"]
    assert [call["name"] for call in calls] == [call["name"] for call in kept]
    assert 1 <= len(calls) <= 2
    # What it read and wrote while it looked is part of what its note cost.
    note = found.read("stages/001/notes/what_it_saw.json")
    assert note["cost"]["input_tokens"] > sum(one["input_tokens"] for one in note["attempts"]) > 0
    assert note["cost"]["output_tokens"] == note["tokens"] > sum(one["output_tokens"] for one in note["attempts"])
    proposal = found.read("stages/001/proposals/0/proposal.json")
    assert found.read("stages/001/proposals/0/cost.json") == proposal["cost"]
    [request] = requests
    assert request["model"] == "judge"
    assert found.read("stages/001/proposals/0/critique.json")["parsed"]["reason"] == APPROVAL["reason"]
    assert start(folder, "--resume", "--approve")[0] == Exit.DONE
    assert len(requests) == 1, "what was said is not asked for again"
    assert found.read("stages/001/plan.json")["source"] == "self"
    # Without an analyst the rule diagnoses, without a trainer the profile's budget holds.
    assert found.read("stages/001/diagnosis.json")["summary"].startswith("frontier ")
    assert found.read("stages/001/budget.json")["reason"] == "the profile's budget"
    assert not asked(prompts, "failure_analyst")
    notes = {name: found.read(f"stages/001/proposals/0/notes/said_{name}.json") for name in functions}
    assert notes["note_by_code"]["parsed"] == {"trend": "flat", "advice": "go on"}
    assert notes["raises"]["errors"] == ["role_sets:raises raised RuntimeError: nothing to say of ['evidence']"]
    assert notes["talks"]["errors"] == ["more: unknown field"]
    assert [notes[name]["parsed"] for name in ("raises", "talks")] == [None, None]
    assert [notes[name]["fallback"] for name in notes] == [False, True, True]


def test_a_model_that_cannot_be_reached_is_told_with_its_role_and_how_to_go_on(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "TRIES", 1)
    folder = tmp_path / "roles"
    write_role(folder, "safety_critic", model={"base_url": "http://127.0.0.1:9/v1", "name": "judge"})
    code, found = start(folder, gates=LOOSE)
    assert code == Exit.FAILED
    told = capsys.readouterr().out
    assert "role safety_critic: the server at http://127.0.0.1:9/v1/ cannot be reached for model 'judge'" in told
    assert f"continue with --resume --run-dir {found.root}" in told
    [ended] = [event for event in found.events() if event["event"] == "ended"]
    assert ended["why"].startswith("role safety_critic: ")
    # The answers that were there are read, and what roles read so far is counted beside what they wrote.
    analyst = found.read("stages/001/answers/failure_analyst.json")["cost"]
    designer = found.read("stages/001/proposals/0/proposal.json")["cost"]
    assert tokens_read(found) == analyst["input_tokens"] + designer["input_tokens"] > 0
    assert token_table(found, [])["roles"] == analyst["output_tokens"] + designer["output_tokens"]


TOOLS_BEFORE = [
    {"tool": "read_history"},
    {"tool": "list_failures", "args": {"limit": 2}},
    {"tool": "measure_config", "args": {"n": 16, "values": {"3x3.hole_ratio": 0.0}}, "name": "open_maps"},
    {"tool": "probe_policy", "args": {"n": 4}},
    {"tool": "compare_configs", "args": {"n": 2, "second": {"values": {"4x4.data_ratio": 0.0}}}},
]
TOOLS_PROMPT = """\
stages {{ evidence.history | length }}
{% for name, text in tools.items() -%}
{{ name }} {{ text | clip(90) }}
{% endfor %}
"""


def test_calls_that_the_run_could_never_make_are_refused_before_it_begins(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own profile and its own open knobs, of which a role file alone knows nothing."""
    calls = [
        {"tool": "probe_policy", "args": {"n": 200}},
        {"tool": "measure_config", "args": {"values": {"topology.rooms": 0.5}}},
    ]
    folder = with_historian(tmp_path / "roles", tools_before=calls)
    (folder / "prompts" / "curriculum_historian.j2").write_text(TOOLS_PROMPT)
    code, found = start(folder, environment="lake", profile="seedling")
    assert code == Exit.BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert "curriculum_historian: tools_before: 1600 answers of the policy are asked for (8 a task)" in line
    assert "args.values: unknown knob 'topology.rooms'" in line
    assert not found.root.exists()


def test_the_seedlings_role_reads_what_its_tools_said_before_it_spoke(
    tmp_path: Path, start: Start, prompts: list[tuple[str, str]]
) -> None:
    tiny = {
        "grpo": {"steps": 2, "batch": 16, "group": 8, "micro_batch": 16, "learning_rate": 1e-5},
        "bounds": {"min_steps": 2, "max_steps": 3},
        "evaluation": {"anchor": 16, "validation": 16, "test": 16},
        "probe": {"tasks": 8, "samples": 2},
    }
    seedling = yaml.safe_load(resources.files("trainer").joinpath("profiles/seedling.yaml").read_text())
    (tmp_path / "seedling.yaml").write_text(yaml.safe_dump(seedling | tiny))
    folder = with_historian(
        tmp_path / "roles", tools_before=TOOLS_BEFORE, limits={"max_rollouts": 16, "max_result_characters": 200}
    )
    (folder / "prompts" / "curriculum_historian.j2").write_text(TOOLS_PROMPT)
    code, found = start(folder, environment="lake", profile=str(tmp_path / "seedling.yaml"))
    assert code == Exit.DONE
    events = [event for event in found.events() if event["event"] == "tool"]
    launched = [(event["stage"], event["role"]) for event in events if event["name"] == "launch_stage"]
    assert launched == [(0, None), (1, "trainer")]
    calls = [event for event in events if event["role"] == "curriculum_historian"]
    assert [call["name"] for call in calls] == [call["tool"] for call in TOOLS_BEFORE]
    assert len(calls) + len(launched) == len(events)
    assert not any(call["error"] for call in calls)
    assert calls[3]["rollouts"] == 8
    assert calls[3]["tokens"] > 0
    [prompt] = asked(prompts, "curriculum_historian")
    assert 'open_maps {"n":16,' in prompt
    kept = found.read("stages/001/notes/curriculum_history.tools.json")
    assert all(len(text) <= 200 and "error" not in text for text in kept["results"].values())
    note = found.read("stages/001/notes/curriculum_history.json")
    assert not note["fallback"]
    assert note["cost"] == {
        "input_tokens": sum(one["input_tokens"] for one in note["attempts"]),
        "output_tokens": note["tokens"],
        "probe_rollouts": 8,
        "probe_tokens": calls[3]["tokens"],
    }
    assert any(f"history {note['parsed']['trend']}" in text for text in asked(prompts, "config_designer"))

"""The role bench asks as the loop does: each analyst under a schema with the ids of its own evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from agents import teacher
from agents.bench import UNSEEN, role_scores
from agents.bench import __main__ as command
from agents.bench.__main__ import main
from agents.bench.planted import Cases, Player, bench_planted, draw_cases
from agents.chat import CheckpointChatModel
from agents.episodes import answer_text, draw_episode
from agents.render import render_messages
from agents.roles import load_roles
from agents.schemas import Change, Critique
from agents.structured import output_schema
from envsim import registry
from envsim.api import Message
from trainer.checkpoint import resolve
from trainer.policy import Completion

LAKE = registry.get("lake")
SEED, N = 5, 60


class Teacher:
    """Gives the teacher's answer to every prompt of the bench; keeps the schema of each and the size of each call."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.schemas: dict[str, Any] = {}
        self.cases: dict[str, tuple[str, list[str], str]] = {}
        rng, roles = np.random.default_rng(np.random.SeedSequence([SEED, UNSEEN])), load_roles()
        for _ in range(N):
            role, inputs, answer = draw_episode(LAKE, rng)
            ids = [failure.id for failure in inputs["evidence"].failures]
            prompt = json.dumps(render_messages(roles[role], "compact", inputs))
            self.cases[prompt] = (role, ids, answer_text(answer))

    def generate(
        self, prompts: Sequence[list[Message]], *, schema: dict[str, Any] | None = None, **_: Any
    ) -> list[list[Completion]]:
        self.sizes.append(len(prompts))
        texts = []
        for prompt in map(json.dumps, prompts):
            self.schemas[prompt] = schema
            texts.append(self.cases[prompt][2])
        return [[Completion(text=text, prompt_tokens=1, tokens=1, finish_reason="stop")] for text in texts]


@pytest.mark.parametrize("constrained", [True, False])
def test_answers_are_scored_under_the_schema_of_their_own_case(constrained: bool) -> None:
    asked, roles = Teacher(), load_roles()
    found = role_scores(asked, LAKE, N, SEED, constrained=constrained)
    assert sum(score["n"] for score in found.values()) == N
    assert all((score["valid"], score["agreement"]) == (1.0, 1.0) for score in found.values())
    for prompt, (role, ids, _) in asked.cases.items():
        expected = output_schema(
            roles[role].output_type, LAKE, LAKE.default_config(), style="compact", evidence_ids=ids
        )
        assert asked.schemas[prompt] == (expected if constrained else None)


def test_equal_schemas_are_decoded_together() -> None:
    asked = Teacher()
    role_scores(asked, LAKE, N, SEED, constrained=True)
    analysts = {tuple(ids) for role, ids, _ in asked.cases.values() if role == "failure_analyst"}
    others = {role for role, _, _ in asked.cases.values()} - {"failure_analyst"}
    assert len(analysts) > 1
    assert len(asked.sizes) == len(analysts) + len(others)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--n", "0"], "--n 0, expected at least 2"),
        (["--drawn", "-1"], "--drawn -1, expected at least 0"),
        (["--max-tokens", "1"], "--max-tokens 1, expected at least 16"),
        (["--url", "ftp://x"], "base_url"),
        (["--run", "/nope"], "cannot read /nope/run.yaml"),
        (["--run", "/nope", "--model", "seedling"], "--model does not go with --run"),
        (["--url", "http://localhost:9/v1", "--random"], "--random does not go with --url"),
        (["--url", "http://localhost:9/v1", "--drawn", "5"], "--drawn does not go with --url"),
        (["--url", "http://localhost:9/v1", "--run", "x"], "--run does not go with --url"),
        (["--url", "http://localhost:9/v1", "--model", "x"], "--model does not go with --url"),
        (["--name", "x"], "--name is of a model behind a URL; give --url too"),
        (["--key-file", "x"], "--key-file is of a model behind a URL"),
        (["--constraint", "grammar"], "--constraint is of a model behind a URL"),
        (["--drawn", "5", "--style", "full"], "--drawn: seedling is asked in the full style; expected compact"),
        (["--threads", "0"], "--threads 0, expected at least 1"),
        (["--seed", "-1"], "--seed -1, expected at least 0"),
        (["--model", "/nope"], "'/nope' is no directory"),
    ],
)
def test_bad_flags_are_one_line(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def begun(root: Path, **changes: Any) -> Path:
    """What the bench reads of a run: the seedling's, with the model of one stage."""
    seedling = resolve("seedling")
    profile = {"model": "seedling", "style": "full", "roles": {"max_new_tokens": 32}}
    data = {"settings": {"environment": "lake"}, "profile": profile, "start_sha256": seedling.sha256, **changes}
    root.mkdir()
    (root / "run.yaml").write_text(yaml.safe_dump(data))
    (root / "stages" / "000").mkdir(parents=True)
    (root / "stages" / "000" / "model").symlink_to(seedling.path)
    return root


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profile": {"model": "seedling"}}, "run.yaml is of no run: KeyError: 'style'"),
        ({"settings": {"environment": "parity:Parity"}}, "is of the environment 'parity:Parity', expected 'lake'"),
        ({"start_sha256": "0" * 64}, "began with another checkpoint: seedling was 000000000000, is "),
    ],
)
def test_a_run_that_cannot_be_asked_is_one_line(
    tmp_path: Path, changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--run", str(begun(tmp_path / "run", **changes))]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_the_checkpoints_of_a_run_are_asked_as_the_run_asks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int]] = []

    def player(_model: Any, _environment: Any, style: str, most_tokens: int) -> None:
        asked.append((style, most_tokens))

    monkeypatch.setattr(command, "Player", player)
    monkeypatch.setattr(command, "bench_planted", lambda *_: {})
    root = begun(tmp_path / "run")
    assert main(["--run", str(root), "--n", "2", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["seedling", str(root / "stages/000/model")]
    assert asked == [("full", 32)] * 2
    asked.clear()
    assert main(["--run", str(root), "--n", "2", "--json", "--style", "compact", "--max-tokens", "99"]) == 0
    assert asked == [("compact", 99)] * 2


class Truthful:
    """Answers every planted prompt by what is true, or by its opposite."""

    def __init__(self, cases: Cases, *, right: bool) -> None:
        self.texts: dict[str, str] = {}
        roles, knobs = load_roles(), LAKE.knobs(LAKE.default_config())
        for one in cases.planted:
            inputs: dict[str, Any] = {"evidence": one.evidence}
            diagnosis = one.diagnosis
            said = diagnosis if right else diagnosis.model_copy(update={"dominant_fault": "out_of_bounds"})
            self.texts[json.dumps(render_messages(roles["failure_analyst"], "compact", inputs))] = answer_text(said)
            inputs |= {"diagnosis": diagnosis, "gate_report": None, "conditions": []}
            proposal = teacher.propose(one.evidence, diagnosis, knobs, None, [])
            others = [change for change in proposal.changes if change.path != one.wanted]
            right_one = proposal.model_copy(update={"changes": [*others, Change(path=one.wanted, op="up")]})
            none = proposal.model_copy(update={"changes": []})
            prompt = json.dumps(render_messages(roles["config_designer"], "compact", inputs))
            self.texts[prompt] = answer_text(right_one if right else none)
        for case in cases.judgements:
            seen = {"evidence": case.planted.evidence, "proposal": case.proposal, "gate_report": case.report}
            verdict = "approve" if (case.kind == "good") is right else "reject"
            critique = Critique.model_validate({"reason": "", "verdict": verdict, "conditions": []})
            self.texts[json.dumps(render_messages(roles["safety_critic"], "compact", seen))] = answer_text(critique)

    def generate(self, prompts: Sequence[list[Message]], **_: Any) -> list[list[Completion]]:
        return [
            [Completion(text=self.texts.get(json.dumps(prompt), "?"), prompt_tokens=3, tokens=2, finish_reason="stop")]
            for prompt in prompts
        ]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return draw_cases(LAKE, 5, 1)


def scores(cases: Cases, policy: Any) -> dict[str, Any]:
    player = Player(CheckpointChatModel(policy=policy), LAKE, "compact", 512)
    return bench_planted(player, cases)


def test_planted_cases_are_balanced(cases: Cases) -> None:
    assert len({one.policy.weakness.name for one in cases.planted}) == 5
    assert [one.kind for one in cases.judgements] == ["good", "bad", "good", "bad", "good"]


def test_the_truth_scores_all_and_its_opposite_nothing(cases: Cases) -> None:
    found = scores(cases, Truthful(cases, right=True))
    assert (found["failure_analyst"]["cause"], found["failure_analyst"]["standings"]) == (1.0, 1.0)
    assert found["config_designer"]["direction"] == 1.0
    assert (found["safety_critic"]["precision"], found["safety_critic"]["recall"]) == (1.0, 1.0)
    assert all((one["repaired"], one["fallback"], one["output_tokens"]) == (0, 0, 2) for one in found.values())
    wrong = scores(cases, Truthful(cases, right=False))
    assert (wrong["failure_analyst"]["cause"], wrong["failure_analyst"]["standings"]) == (0.0, 1.0)
    assert wrong["config_designer"]["direction"] == 0.0
    assert (wrong["safety_critic"]["precision"], wrong["safety_critic"]["recall"]) == (0.0, 0.0)


def test_what_the_rule_had_to_answer_is_not_the_models(cases: Cases) -> None:
    mute = Truthful(cases, right=True)
    mute.texts.clear()
    found = scores(cases, mute)
    for role, names in (("failure_analyst", ("cause",)), ("config_designer", ("direction", "gates"))):
        assert found[role]["fallback"] == 1.0
        assert all(found[role][name] == 0.0 for name in names)
    assert found["safety_critic"]["recall"] == 0.0

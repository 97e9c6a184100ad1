"""Whatever comes in: an answer or one clear line, never a traceback, never a hang."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import fuzz
import pytest

from envsim.__main__ import main
from envsim.formats.movingai import write_scenario
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, dump_instances

LAKE = Lake()
INSTANCES: list[LakeInstance] = LAKE.generate(EnvConfig(), 24, 5).instances
SMALL = [instance for instance in INSTANCES if instance.size <= 5]
LAYOUTS: list[dict[str, Any]] = [
    {"name": f"l{i}", "rows": s.rows, "starts": s.starts, "goals": s.goals} | ({"via": s.goals[::-1]} if i % 3 else {})
    for i, s in enumerate(SMALL)
]


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and the one line on stderr, if any."""
    with fuzz.at_most(20):
        code = main([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert code in (0, 2), arguments
    assert said.count("\n") == (code == 2), (arguments, said)
    assert said.startswith("envsim: ") or code == 0
    assert "Traceback" not in said
    return code, said


def _answers(rng: random.Random, n: int) -> list[tuple[LakeInstance, str]]:
    made = []
    for _ in range(n):
        instance = rng.choice(INSTANCES)
        style = rng.choice(("compact", "full"))
        text = LAKE.reference_answer(instance, style)
        if rng.random() < 0.3:
            text = LAKE.null_answers(instance, style, rng.randrange(99))[rng.choice(("random_legal", "each_alone"))]
        match rng.randrange(4):
            case 0:
                text = fuzz.broken(rng, text.encode()).decode("utf-8", "replace")
            case 1 if style == "full":
                text = json.dumps(fuzz.changed(rng, json.loads(text)))
            case 2:
                place = rng.randrange(len(text) + 1)
                text = (
                    text[:place]
                    + rng.choice((")", "(", "-", "9" * 12, "<think>", "</think>", '{"plan"', " "))
                    + text[place:]
                )
            case _:
                text = text.replace(str(rng.randrange(10)), str(rng.randrange(-2, 12)), rng.randrange(1, 4))
        made.append((instance, text))
    return made


def test_ten_thousand_answers_have_a_verdict() -> None:
    seen: Counter[str] = Counter()
    with fuzz.at_most(60):
        for instance, text in _answers(random.Random(0), 6_000):
            verdict = LAKE.score(instance, text)
            assert verdict.valid == (verdict.outcome in ("optimal", "valid_suboptimal"))
            LAKE.replay(instance, text)
            seen[verdict.outcome] += 1
    assert set(LAKE.outcomes) - set(seen) <= {"wrong_agent_count"}
    assert max(seen.values()) < 5_000


def _plan(rng: random.Random, layout: dict[str, Any]) -> list[list[list[int]]]:
    """A walk of each agent with a few cells moved, paths cut, doubled or dropped."""
    height, width = len(layout["rows"]), len(layout["rows"][0])
    plan = []
    for start in layout["starts"]:
        path = [list(start)]
        for _ in range(rng.randrange(8)):
            r, c = path[-1]
            dr, dc = rng.choice(((0, 1), (1, 0), (0, -1), (-1, 0), (0, 0)))
            inside = rng.random() < 0.05 or (0 <= r + dr < height and 0 <= c + dc < width)
            path.append([r + dr, c + dc] if inside else [r, c])
        if rng.random() < 0.1:
            path[rng.randrange(len(path))] = [rng.randrange(-3, 9), rng.choice((0, 1, 10**12))]
        plan.append(path)
    match rng.randrange(12):
        case 0:
            plan.pop()
        case 1:
            plan.append(plan[0])
        case 2:
            plan[0] = []
        case _:
            pass
    return plan


def test_four_thousand_plans_are_answered_by_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path = random.Random(1), tmp_path / "plans.jsonl"
    rows = [layout | {"plan": _plan(rng, layout)} for layout in (rng.choice(LAYOUTS) for _ in range(4_000))]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with fuzz.at_most(60):
        assert main(["verify", str(path)]) == 0
    verdicts = Counter(json.loads(line)["verdict"] for line in capsys.readouterr().out.splitlines())
    assert sum(verdicts.values()) == 4_000
    assert len(verdicts) >= 9


def _file(rng: random.Random, directory: Path, case: int) -> list[object]:
    """A command on a file that was valid before it was changed."""
    path = directory / f"{case}"
    kind = rng.choice(("solve", "certified", "verify", "config", "answers", "set", "export", "scen", "map"))
    chosen = rng.sample(SMALL, 3)
    made = [json.loads(instance.model_dump_json()) for instance in chosen]
    rows = {
        "solve": LAYOUTS[:3],
        "certified": made,
        "set": made,
        "export": made,
        "verify": [layout | {"plan": _plan(rng, layout)} for layout in LAYOUTS[:3]],
        "answers": [{"id": i.id, "answer": LAKE.reference_answer(i, "compact")} for i in chosen],
    }
    if kind in ("scen", "map"):
        scenario = path.with_suffix(".scen")
        write_scenario(chosen[0], scenario)
        target = path.with_suffix(f".{kind}")
        target.write_bytes(fuzz.broken(rng, target.read_bytes()))
        return [rng.choice(("solve", "render")), scenario, *rng.choice(([], ["--agents", 1]))][:4]
    if kind == "config":
        data = fuzz.yaml_text(rng, json.loads(EnvConfig().model_dump_json()))
        path.write_bytes(data if rng.random() < 0.6 else fuzz.broken(rng, data))
        return ["generate", "--config", path, "--n", 2]
    data = fuzz.json_lines(rng, rows[kind])
    path.write_bytes(data if rng.random() < 0.6 else fuzz.broken(rng, data))
    if kind == "answers":
        good = path.with_suffix(".set")
        good.write_bytes(dump_instances(chosen))
        return ["benchmark", "--score", path, "--set", good]
    if kind == "set":
        return ["benchmark", "--prompts", path.with_suffix(".out"), "--set", path]
    if kind == "export":
        return ["export", path, "--out", path.with_suffix(".out")]
    return {
        "solve": ["solve", path, "--node-limit", 2000],
        "certified": [rng.choice(("solve", "render")), path],
        "verify": ["verify", path, "--node-limit", 2000],
    }[kind]


@pytest.mark.parametrize("part", range(4))
def test_a_thousand_files(tmp_path: Path, part: int, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(part)
    codes: Counter[int] = Counter()
    for case in range(250):
        codes[_run(capsys, *_file(rng, tmp_path, case))[0]] += 1
    assert codes[2] > 100
    assert codes[0] > 15


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve"],
        ["solve", "anchor", "--agents", "2"],
        ["solve", "x.scen", "--agents", "two"],
        ["solve", "x.map"],
        ["solve", "anchor", "--node-limit", "0"],
        ["solve", "anchor", "--node-limit", "9" * 5000],
        ["solve", "a\x00b"],
        ["solve", "a\nb"],
        ["solve", ""],
        ["verify", "."],
        ["verify", "x" * 5000],
        ["generate", "--n", "0"],
        ["generate", "--n", "-3"],
        ["generate", "--n", "1e3"],
        ["generate", "--n", "9" * 15],
        ["generate", "--config", "."],
        ["generate", "--config", "missing.yaml"],
        ["generate", "--split", "nothing"],
        ["generate", "--format", "datasets", "--n", "1"],
        ["generate", "--out", "no/such/place", "--n", "1"],
        ["generate", "--out", "/dev/null/x", "--n", "1"],
        ["benchmark"],
        ["benchmark", "--score", "."],
        ["benchmark", "--score", "-", "--set", "-"],
        ["benchmark", "--score", "missing", "--set", "anchor"],
        ["benchmark", "--prompts", "p", "--set", "nothing"],
        ["benchmark", "--prompts", "p", "--score", "s"],
        ["benchmark", "--prompts", "p", "--verdicts", "v", "--set", "anchor"],
        ["export", "anchor"],
        ["export", "nothing", "--out", "x"],
        ["schema", "Nothing"],
        ["sets", "nothing"],
        ["bench", "--seconds", "-1"],
        ["nothing"],
        [],
    ],
)
def test_arguments_that_cannot_be(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(capsys, *arguments)[0] == 2
    assert list(tmp_path.iterdir()) == []

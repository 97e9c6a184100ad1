"""Prompts are the documented ones; the parser survives what models write and completes nothing by itself."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from envsim_cases import Layout, layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.solver import analyse
from envsim.lake.text import SYSTEM, ParseError, parse, prompt, render
from envsim.lake.verifier import verify

ROWS = ["@..", "...", "@.."]
STARTS, GOALS = [(1, 2), (2, 2)], [(1, 0), (2, 1)]
PLAN = [[(1, 2), (1, 1), (1, 0)], [(2, 2), (2, 1), (2, 1)]]
COMPACT = "(1,2)(2,2)(1,1)(2,1)(1,0)(2,1)"
FULL = '{"plan":[[[1,2],[1,1],[1,0]],[[2,2],[2,1],[2,1]]]}'


def _instance() -> LakeInstance:
    return make_instance(ROWS, STARTS, GOALS, analyse(ROWS, STARTS, GOALS).certificate())


def test_compact_prompt() -> None:
    expected = "plan 3 2\nholes (0,0)(2,0)\nfrom (1,2)(2,2)\nto (1,0)(2,1)"
    assert prompt(_instance(), "compact") == [{"role": "user", "content": expected}]


def test_compact_prompt_without_holes_keeps_its_lines() -> None:
    content = prompt(make_instance(["..", ".."], [(0, 0)], [(1, 1)]), "compact")[0]["content"]
    assert content.split("\n") == ["plan 2 1", "holes ", "from (0,0)", "to (1,1)"]


def test_full_prompt() -> None:
    system, user = prompt(_instance(), "full")
    assert (system["role"], user["role"]) == ("system", "user")
    assert '{"plan": [[[r, c], [r, c], ...]' in system["content"]
    assert "@..\n...\n@.." in user["content"]
    assert "Agent 1: start [2, 2], goal [2, 1]" in user["content"]


def test_prompts_tell_via_cells_and_slips_where_there_are_such() -> None:
    plain = _instance()
    rich = make_instance(
        ROWS, STARTS, GOALS, via=[(1, 1), (1, 2)], success_rate=0.98, shaping=0.3, topology="rooms", placement="far"
    )
    compact = prompt(rich, "compact")[0]["content"]
    assert compact == "plan 3 2 slip 0.02\nholes (0,0)(2,0)\nfrom (1,2)(2,2)\nvia (1,1)(1,2)\nto (1,0)(2,1)"
    system, user = (message["content"] for message in prompt(rich, "full"))
    assert "Agent 1: start [2, 2], via [1, 2], goal [2, 1]" in user
    assert "with probability 0.98, and to each of the two sides of that direction with probability 0.01." in system
    bare, _ = (message["content"] for message in prompt(plain, "full"))
    assert bare == SYSTEM
    assert set(bare.splitlines()) < set(system.splitlines())
    assert len(system.splitlines()) == len(bare.splitlines()) + 2


def test_labels_alone_change_no_prompt() -> None:
    labelled = make_instance(ROWS, STARTS, GOALS, topology="rooms", placement="far", shaping=0.3)
    for style in ("compact", "full"):
        assert prompt(labelled, style) == prompt(_instance(), style)


def test_default_prompts_are_the_bytes_of_ever() -> None:
    texts = [json.dumps(prompt(_instance(), style)) for style in ("compact", "full")]
    assert (
        hashlib.sha256("".join(texts).encode()).hexdigest()
        == "9f147de43df1eacc65b00ef559a71e4fe7d96ef809e3fc06f926c22e180e7892"
    )


def test_answers_in_both_styles() -> None:
    assert render(PLAN, "compact") == COMPACT
    assert render(PLAN, "full") == FULL
    assert render([[(0, 0)], [(1, 1), (1, 2)]], "compact") == "(0,0)(1,1)(0,0)(1,2)"


@pytest.mark.parametrize(
    "answer",
    [
        COMPACT,
        f" \n{COMPACT}\n",
        "(1, 2) (2 ,2)\n( 1,1)(2,1)\n(1,0)(2,1)",
        f"<think>maybe (9,9)</think>{COMPACT}",
        f"thoughts</think>\n\n{COMPACT}",
        FULL,
        f"Sure, here it is:\n```json\n{json.dumps(json.loads(FULL), indent=2)}\n```\nHope that helps {{}} [1]",
        f'First try {{"plan": [[[0,0]],[[0,1]]]}}, no, better:\n{FULL}',
        f'<think>{{"plan": [[[0,0]],[[0,1]]]}}</think>{FULL}',
        '{"why": {"a": {"b": 1}}, ' + FULL[1:],
        FULL[:-1] + ', "note": "the \\"plan\\" is good {"}',
    ],
)
def test_parse_finds_the_plan(answer: str) -> None:
    assert parse(answer, 2) == PLAN


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "  \n",
        "I cannot do this.",
        f"<think>{COMPACT}",
        f"<think>a</think><think>{FULL}",
        f"{COMPACT}<think>",
        f"{FULL}</think>",
        COMPACT[:-1],
        COMPACT[:-5],
        f"{COMPACT}(1,",
        f"plan: {COMPACT}",
        f"{COMPACT} done",
        "(1,2)(2,2)(1.0,1)(2,1)",
        "(1;2)",
        "(01,2)(2,2)",
        "(١,٢)(2,2)",
        FULL[:-1],
        FULL[:-9],
        '{"plan": null}',
        '{"plan": "[[[1,2]]]"}',
        '{"plan": [[[1,2],[1,1,1]],[[2,2]]]}',
        '{"plan": [[[1,2],[1,"1"]],[[2,2]]]}',
        '{"plan": [[[1,2],[1,1.0]],[[2,2]]]}',
        '{"plan": [[[1,2],[1,true]],[[2,2]]]}',
        '{"plan": [[[1,2]],[]]}',
        '{"plan": [[1,2],[2,2]]}',
        '{"plan": {"0": [[1,2]]}}',
        '{"moves": "plan"}',
        '"plan"',
        "[" * 100_000 + '"plan"',
        "{" * 100_000 + '"plan"',
        '{"plan":' + "[" * 100_000,
        '{"plan": [[[' + "9" * 5000 + ",1]],[[2,2]]]}",
    ],
)
def test_parse_refuses(answer: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(answer, 2)
    assert caught.value.outcome == "parse_error"


@pytest.mark.parametrize("answer", ['{"plan": []}', '{"plan": [[[1,2]]]}', '{"plan": [[[1,2]],[[2,2]],[[0,1]]]}'])
def test_wrong_number_of_agents(answer: str) -> None:
    assert Lake().score(_instance(), answer).outcome == "wrong_agent_count"


def test_negative_and_far_cells_are_read_and_are_out_of_bounds() -> None:
    assert Lake().score(_instance(), "(1,2)(2,2)(1,3)(2,1)").outcome == "out_of_bounds"
    assert Lake().score(_instance(), "(1,2)(2,2)(-1,2)(2,1)").outcome == "out_of_bounds"


@settings(max_examples=60, deadline=None)
@given(layouts(3, 5, (2, 4)), st.sampled_from(["compact", "full"]))
def test_reference_answers_are_optimal(layout: Layout, style: str) -> None:
    _, rows, starts, goals = layout
    n = len(rows)
    s, g = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
    certificate = analyse(rows, s, g).certificate()
    if certificate.solvable:
        instance = make_instance(rows, s, g, certificate)
        answer = Lake().reference_answer(instance, "compact" if style == "compact" else "full")
        assert Lake().score(instance, answer).outcome == "optimal"


def test_garbage_never_raises_and_is_valid_only_if_it_is_a_valid_plan() -> None:
    """5,000 strings: pieces of real answers and of syntax, shuffled, cut and joined."""
    rng = random.Random(0)
    instance, lake = _instance(), Lake()
    pieces = ["(1,2)", "(2,2)", "(1,1)", "(2,1)", "(1,0)", "(", ")", ",", "[", "]", "{", "}", '"plan"', ":", " ", "\n"]
    pieces += ["```", "</think>", "<think>", "0", "-1", "x", "\x00", "é", "null", COMPACT, FULL, FULL[:20], COMPACT[:9]]
    valid = 0
    for _ in range(5_000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(14)))
        if rng.random() < 0.3:
            base = rng.choice([COMPACT, FULL])
            cut = rng.randrange(len(base))
            text = base[:cut] + rng.choice(pieces) + base[cut + rng.randrange(3) :]
        verdict = lake.score(instance, text)
        assert verdict.outcome in lake.outcomes
        if verdict.valid:
            valid += 1
            plan = parse(text, 2)
            assert verify(ROWS, STARTS, GOALS, plan).valid
            written = [text.rpartition("</think>")[2].replace(" ", "").replace("\n", "")]
            assert any(render(plan, style) in written[0] for style in ("compact", "full")), text
    assert 100 < valid < 1_000


@settings(max_examples=300)
@given(st.text(max_size=80))
def test_any_text_has_a_verdict(text: str) -> None:
    assert not Lake().score(_instance(), text).valid

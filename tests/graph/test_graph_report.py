"""The report: whatever a model wrote is shown as text, and charts say what they were given."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chromium import Tab, browser
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import Parity

from graph import words
from graph.charts import Estimate, axis_end, curve, interval_bar, stacked_bar
from graph.report import render
from graph.report_figures import macro
from graph.report_state import At, sessions, standing
from graph.report_story import now_card, turns
from graph.summary import replays, spread
from graph.timing import CATEGORIES
from graph.trace_spans import Span
from trainer.evaluate import Rollout

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def answer(**parsed: Any) -> dict[str, Any]:
    return {"by": "x", "parsed": parsed, "fallback": True, "raw": HOSTILE, "tokens": 3, "errors": [HOSTILE]} | {
        "seen": [{"role": "user", "content": HOSTILE}],
        "attempts": [
            {"raw": HOSTILE, "finish_reason": "stop", "input_tokens": 5, "output_tokens": 1, "errors": [HOSTILE]}
        ]
        * 2,
    }


def score(valid: float) -> dict[str, float]:
    return {"macro_valid": valid, "macro_optimal": valid / 2, "n": 24}


def change(delta: float) -> dict[str, float]:
    return {"delta": delta, "low": delta - 0.02, "high": delta + 0.02}


def film(text: str) -> dict[str, Any]:
    fault = {"step": 3, "agent": None, "location": "here"}
    before = {"film": "<svg/>", "outcome": "odd", "valid": False, "fault": fault, "answer": text}
    after = {"film": "<svg/>", "outcome": "optimal", "valid": True, "fault": None, "answer": text}
    return {"id": "1", "cell": text, "before": before, "after": after}


def summary() -> dict[str, Any]:
    pointer = {"stage": 1, "path": "stages/001/model", "sha256": "1", "anchor": 0.5}
    finding = {"gate": "G1", "passed": False, "figure": None, "threshold": 0.3, "reason": HOSTILE, "cells": []}
    stage = {
        "stage": 1,
        "plan": {"source": "self", "own": True, "reason": HOSTILE, "changes": [HOSTILE], "revision": 0},
        "knobs": {"a.data_ratio": {"value": 1.0, "low": 0.0, "high": 1.0, "up": 1.0, "down": 0.9}},
        "shares": {"a": 1.0},
        "measured": {},
        "budget": {},
        "dataset": "1",
        "config_hash": "2",
        "training": {"steps": 4, "reward_first": 0.1, "reward_last": 0.4, "zero_variance_share": 0.5},
        "decision": {
            "stage": 1,
            "accepted": True,
            "reason": "anchor changed",
            "champion": pointer,
            "before": score(0.4),
            "after": score(0.5),
            "valid": change(0.1),
            "optimal": change(0.05),
        },
        "answers": {
            "failure_analyst": answer(summary=HOSTILE, dominant_fault="odd", cells={"a": "learnable"}),
            "trainer": answer(steps=4, learning_rate_scale=1.0, reason=HOSTILE),
        },
        "notes": {"cost": answer(text="cheap enough") | {"role": "cost_auditor"}},
        "rounds": [
            {
                "proposal": answer(rationale=HOSTILE, changes=[{"path": "a.data_ratio", "op": "set", "value": 1}]),
                "gates": {"passed": False, "findings": [finding]},
                "critique": answer(verdict="revise", reason=HOSTILE, conditions=[]),
                "notes": {"second_thought": answer(text=HOSTILE)},
            }
        ],
    }
    cell = {"n": 24, "valid": 0.5, "optimal": 0.2, "outcomes": {"odd": 12, "optimal": 12}}
    report = {"cells": {"a": cell}, "outcomes": cell["outcomes"]}
    test = {"before": score(0.4), "after": score(0.5), "valid": change(0.1), "optimal": change(0.05), "cells": []}
    chosen = {"environment": "x", "profile": "y", "designer": "self", "seed": 0}
    return {
        "name": "run",
        "identity": {"settings": chosen},
        "cells": ["a"],
        "start": report,
        "stages": [{**stage, "stage": 0}, stage],
        "open": None,
        "how": "done",
        "why": "",
        "sessions": [],
        "spans": [],
        "tools": [
            {"stage": 1, "name": "launch_stage", "args": {"steps": 4}, "seconds": 2.0, "tokens": 9, "error": HOSTILE}
        ],
        "validation": [report, report, report],
        "anchor": [report, report, report],
        "final": {"sets": {"test": test}, "benchmark": []},
        "role_fallbacks": 3,
        "time": dict.fromkeys(CATEGORIES, 1.0),
        "tokens": {"training": 1000},
        "read": 1234,
    }


def test_what_a_model_wrote_is_never_markup() -> None:
    page = render(summary(), [film(HOSTILE)])
    assert "<img src=x" not in page
    assert page.count("<script") == 1, "the page's own"
    assert "onerror=" in page
    assert "&lt;img src=x" in page


def test_replays_are_films_inside_the_page() -> None:
    """The page fetches nothing: every picture is in it, as the environment drew it."""
    page = render(summary(), [film("ok")])
    pictures = re.findall(r'<img src="([^"]*)"', page)
    assert [base64.b64decode(one.removeprefix("data:image/svg+xml;base64,")) for one in pictures] == [b"<svg/>"] * 2
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "http:" not in re.sub("http://www.w3.org/2000/svg", "", page)
    assert "before: odd (step 3, here)" in page
    assert "after: optimal" in page
    assert "solved later" in page
    assert "Nothing to show yet" not in page
    assert "Nothing to show yet" in render(summary(), [])


def test_a_replay_holds_the_film_of_each_answer() -> None:
    environment = Parity()
    task = environment.frozen_set("validation")[0]
    rows = {
        name: Rollout.model_validate(
            {"id": task.id, "cell": task.where, "sample": 0, "answer": answer, "tokens": 1}
            | environment.score(task, answer).model_dump(include={"outcome", "valid", "optimal", "regret", "fault"})
        )
        for name, answer in (("before", "abc"), ("after", "ok"))
    }
    (found,) = replays(environment, [task], [rows["before"]], [rows["after"]])
    assert found["before"]["film"] == environment.film(task, "abc")
    assert found["after"]["film"] == environment.film(task, "ok")
    page = render(summary(), [found])
    assert "before: odd (step 3)" in page


def test_the_page_shows_scores_decisions_and_fallbacks() -> None:
    page = render(summary(), [])
    for text in (
        "cost auditor",
        "cheap enough",
        "From 40.0 % to 50.0 % valid plans in 2 stages",
        "kept",
        "champion",
        "rule",
        "+10.0",
        "fail",
    ):
        assert text in page, text


def span(number: int, kind: str, name: str, seconds: float) -> Span:
    return Span(
        id=str(number), parent=None, session="1", kind=kind, name=name, started=number, seconds=seconds, stage=1
    )  # type: ignore[arg-type]


def told_by(role: str, cost: dict[str, int] | None = None, **parsed: Any) -> dict[str, Any]:
    return answer(**parsed) | {"role": role, "by": role} | ({"cost": cost} if cost else {})


def own_roles() -> tuple[dict[str, Any], dict[str, Any]]:
    """A stage and a summary of a run in which every role is a person's own, with two proposals."""
    nodes = ("evidence", "historian", "doctor", "architect", "gates", "auditor", "judge", "settle", "coach", "dataset")
    spans = [span(number, "node", name, 9.0) for number, name in enumerate(nodes)]
    spoken = (("historian", 1.0), ("doctor", 2.0), ("architect", 3.0), ("auditor", 4.0), ("judge", 5.0))
    spans += [span(20 + number, "model", name, seconds) for number, (name, seconds) in enumerate(spoken)]
    again = (("architect", 6.0), ("auditor", 7.0), ("judge", 8.0), ("coach", 10.0))
    spans += [span(40 + number, "model", name, seconds) for number, (name, seconds) in enumerate(again)]
    cost = {"input_tokens": 70, "output_tokens": 3, "probe_rollouts": 32, "probe_tokens": 500}
    passed = {"passed": True, "findings": []}
    review = {
        "proposal": told_by("architect", cost, rationale="r", changes=[]),
        "gates": passed,
        "critique": told_by("judge", verdict="revise", reason="r", conditions=[]),
        "notes": {"audit": told_by("auditor", text="n")},
    }
    stage = {
        "stage": 1,
        "answers": {
            "coach": told_by("coach", steps=4, learning_rate_scale=1.0, reason="r"),
            "doctor": told_by("doctor", summary="s", dominant_fault="odd", cells={}),
        },
        "notes": {"past": told_by("historian", text="n")},
        "rounds": [review, review],
    }
    tools = [
        {"stage": 1, "revision": 0, "role": "architect", "name": "probe_policy", "args": {"n": 4}},
        {"stage": 1, "revision": 1, "role": "architect", "name": "read_history", "args": {}},
        {"stage": 1, "revision": 1, "role": "judge", "name": "measure_config", "args": {}},
        {"stage": 1, "revision": 0, "role": "historian", "name": "read_history", "args": {}},
        {"stage": 1, "name": "launch_stage", "args": {}},
        {"stage": 2, "revision": 0, "role": "judge", "name": "other", "args": {}},
    ]
    return stage, {**summary(), "spans": spans, "tools": tools}


def test_roles_of_ones_own_are_told_in_their_order_with_seconds_and_calls() -> None:
    stage, data = own_roles()
    said = turns(stage, data)
    names = ["historian", "doctor", *["architect", "gates", "auditor", "judge"] * 2, "coach"]
    assert [one["role"] for one in said] == names
    kinds = ["note", "diagnosis", *["proposal", "gates", "note", "critique"] * 2, "budget"]
    assert [one["kind"] for one in said] == kinds
    assert [one["seconds"] for one in said] == [1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, None, 7.0, 8.0, 10.0]
    called = [[found["text"] for found in one["tools"]] for one in said]
    assert called[0] == ["read_history()"]
    assert called[2] == ["probe_policy(n=4)"]
    assert called[6] == ["read_history()"]
    assert called[9] == ["measure_config()"]
    assert called[10] == ["launch_stage()"]
    assert sum(map(len, called)) == 5
    assert (said[2]["input_tokens"], said[2]["rollouts"]) == (70, 32)
    page = render({**data, "stages": [{**data["stages"][1], **stage}]}, [])
    assert "32 answers of the policy" in page
    assert "proposal 2 of 2" in page


@pytest.mark.parametrize(
    ("approval", "told"),
    [
        ({"approved": True}, "approved it"),
        ({"approved": False}, "rejected it"),
        ({"approved": False, "edited": True}, "put another proposal in its place"),
    ],
)
def test_a_persons_word_stands_behind_the_critics(approval: dict[str, bool], told: str) -> None:
    data = summary()
    stage = data["stages"][1]
    assert "a person" not in [one["role"] for one in turns(stage, data)]
    stage["rounds"][0]["approval"] = approval
    said = turns(stage, data)
    last = [one["role"] for one in said].index("a person")
    assert said[last - 1]["kind"] in ("critique", "note")
    assert told in render(data, [])


def test_another_model_and_another_designer_are_named() -> None:
    data = summary()
    assert "The model that is being trained read its own failures" in render(data, [])
    data["stages"][1]["rounds"][0]["critique"]["model"] = "judge at http://localhost:1/v1"
    data["identity"]["settings"]["designer"] = "random"
    page = render(data, [])
    assert "judge at http://localhost:1/v1" in page
    assert "The model that is being trained read its own failures" not in page


def test_a_log_that_says_nothing_leaves_the_shipped_order() -> None:
    names = [one["role"] for one in turns(summary()["stages"][1], summary())]
    assert names == [
        "cost_auditor",
        "failure_analyst",
        "config_designer",
        "gates",
        "safety_critic",
        "second_thought",
        "trainer",
    ]


def test_the_card_of_a_run_at_work_names_its_own_roles() -> None:
    live = AT.model_copy(update={"node": "architect", "steps": ("evidence", "architect", "gates")})
    card = now_card(live, 1.0)
    assert card is not None
    assert [(step["name"], step["here"]) for step in card["steps"]] == [
        ("evidence", False),
        ("architect", True),
        ("gates", False),
    ]
    first = now_card(live.model_copy(update={"stage": 0}), 1.0)
    assert first is not None
    assert [step["name"] for step in first["steps"]][:2] == ["settle", "dataset"]


def test_a_stage_says_what_it_rehearsed_and_another_nothing() -> None:
    told, rehearsed = summary(), {"episodes": 1320, "loss_first": 0.25, "loss_last": 0.1254}
    last = told["stages"][1]
    told["stages"][1] = {**last, "training": {**last["training"], "rehearsed": rehearsed}}
    assert render(told, []).count("1,320 role episodes rehearsed, loss 0.250 → 0.125") == 1
    assert "rehearsed" not in render(summary(), [])


def test_a_stage_on_the_last_accepted_configuration_stands_out() -> None:
    data = summary()
    data["stages"][1] |= {"plan": {**data["stages"][1]["plan"], "source": "reused"}}
    page = render(data, [])
    assert '<span class="badge bad">reused</span>' in page
    assert '<span class="badge ">self</span>' in page


def test_charts_are_bounded_and_escape_their_labels() -> None:
    half = Estimate(0.5, 0.4, 0.6)
    drawn = curve(["<b>", "1"], [half, Estimate(0.9, 0.8, 1.0)], [0.0, None], kept=[True, False])
    assert "&lt;b&gt;: 50.0 % valid (40 to 60)" in drawn
    assert "1: 90.0 % valid (80 to 100), rolled back" in drawn
    assert drawn.count('class="dot"') == drawn.count('class="hollow"') == 1
    assert curve(["a"], [None], [None], kept=[True]) == ""
    assert 'x="100.000"' not in stacked_bar([("a", 0.5, "o1"), ("b", 0.5, "o2")])
    assert "good" in interval_bar(5.0, 4.0, 6.0, 0.2)
    assert "bad" in interval_bar(-0.1, -0.2, -0.05, 0.2)


@settings(deadline=None)
@given(values=st.lists(st.floats(-1, 1), max_size=9))
def test_an_axis_holds_all_its_values(values: list[float]) -> None:
    assert all(abs(value) <= axis_end(values) <= 1 for value in values)


@settings(deadline=None)
@given(
    cells=st.dictionaries(
        st.text(min_size=1, max_size=3), st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=5
    )
)
def test_the_interval_of_a_macro_score_holds_it(cells: dict[str, tuple[int, int]]) -> None:
    report = {"cells": {name: {"n": n, "valid": min(k, n) / n, "optimal": 0.0} for name, (k, n) in cells.items()}}
    low, value, high = (macro(report)["valid"][i] for i in (1, 0, 2))
    assert 0 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1


def test_replays_are_spread_over_cells_before_outcomes() -> None:
    def row(name: str, cell: str, outcome: str) -> Rollout:
        return Rollout.model_validate(
            {"id": name, "cell": cell, "sample": 0, "answer": "", "tokens": 1, "outcome": outcome}
            | {"valid": False, "optimal": False, "regret": 1.0, "fault": None}
        )

    rows = [row("1", "3x3", "hole"), row("2", "3x3", "hole"), row("3", "3x3", "odd"), row("4", "4x4", "hole")]
    assert [one.cell for one in spread(rows, ["3x3", "4x4"], 2)] == ["4x4", "3x3"]
    assert len(spread(rows, ["3x3", "4x4"], 9)) == 3


def test_a_gate_that_failed_by_little_does_not_look_as_if_it_had_passed() -> None:
    data = summary()
    [finding, *_] = data["stages"][1]["rounds"][0]["gates"]["findings"]
    finding |= {"passed": False, "figure": 0.21998, "threshold": 0.22}
    page = render(data, [])
    assert '✗ 0.21998 <span class="limit">/ 0.22</span>' in page


def test_every_answer_has_a_line() -> None:
    assert words.answer(None) == "no usable answer"
    assert "a.data_ratio set 1" in words.answer(summary()["stages"][0]["rounds"][0]["proposal"]["parsed"])
    assert words.answer({"verdict": "approve", "reason": "fine", "conditions": []}) == "approve: fine"


def log(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"time": float(number), **event} for number, event in enumerate(events)]


def test_the_log_tells_how_every_session_ended() -> None:
    begun = ({"event": "session", "session": "a"}, {"event": "node", "node": "train", "stage": 0})
    again = ({"event": "session", "session": "b"}, {"event": "node", "node": "train", "stage": 0})
    nothing = ({"event": "session", "session": "c"},)
    assert standing(log()) == "running"
    assert standing(log(*begun)) == "running"
    assert standing(log(*begun, {"event": "ended", "how": "failed", "why": "no luck"})) == "failed"
    assert standing(log(*begun, {"event": "ended", "how": "waiting"}, *nothing)) == "waiting"
    found = sessions(log(*begun, {"event": "ended", "how": "drained"}, *again, {"event": "ended", "how": "odd"}))
    assert [(one.name, one.how) for one in found] == [("a", "drained"), ("b", "running")]
    assert (found[1].started, found[1].ended) == (3.0, 5.0)


AT = At(node="train", stage=1, since=0.0, title=HOSTILE, done=3, total=9, figures={"reward": 0.5})


def test_a_page_of_a_run_at_work_loads_itself_again_and_another_does_not() -> None:
    live, still = render(summary(), [], at=AT), render(summary(), [])
    assert "data-reload" in live
    assert "3 of 9 · reward 0.5" in live
    assert "at work" in live
    assert "data-reload" in render({**summary(), "how": "running"}, []), "between two nodes too"
    assert "data-reload" not in still
    assert "refresh" not in still


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


OVERFLOWS = """[...document.querySelectorAll("body *")]
  .filter(one => !one.closest(".scroll, nav") && one.getBoundingClientRect().right > innerWidth + 0.5)
  .map(one => one.tagName + "." + one.className)"""


def long_summary() -> dict[str, Any]:
    """A page that is hard to lay out: many stages, and words that do not end."""
    data = summary()
    stages = [{**data["stages"][1], "stage": number} for number in range(12)]
    reports = [data["validation"][0]] * 13
    word = "x" * 400
    stages[3] = {**stages[3], "plan": {**stages[3]["plan"], "reason": word, "changes": [word]}}
    return {**data, "stages": stages, "validation": reports, "anchor": reports, "name": word}


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_and_the_console_is_silent(
    tab: Tab, tmp_path: Path, width: int, dark: bool
) -> None:
    page = tmp_path / "index.html"
    page.write_text(render(long_summary(), [film(HOSTILE)], at=AT), encoding="utf-8")
    tab.events.clear()
    tab.open(page, width=width, dark=dark)
    assert tab.evaluate(OVERFLOWS) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.complaints() == []


def test_the_page_can_be_read_without_seeing_it(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(render(summary(), [film("ok")]), encoding="utf-8")
    tab.open(page, width=1280)
    bare = (
        "[...document.querySelectorAll('svg, img')].filter(one => !one.getAttribute('aria-label') && !one.alt).length"
    )
    assert tab.evaluate(bare) == 0
    levels = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    lost = "[...document.querySelectorAll('nav a')].filter(one => !document.querySelector(one.hash)).length"
    assert tab.evaluate(lost) == 0


def test_a_reload_shows_the_new_page_and_keeps_what_was_open(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(render(summary(), [], at=AT).replace('data-reload="10"', 'data-reload="1"'), encoding="utf-8")
    tab.open(page, width=1280)
    tab.evaluate("document.getElementById('settings').open = true; document.getElementById('talk-1').open = false")
    later = {**summary(), "name": "later"}
    page.write_text(render(later, []), encoding="utf-8")
    tab.wait("Page.loadEventFired")
    assert tab.evaluate("document.title") == "Envwright: later"
    assert tab.evaluate("document.getElementById('settings').open") is True
    assert tab.evaluate("document.getElementById('talk-1').open") is False
    assert tab.evaluate("document.documentElement.dataset.reload || null") is None, "a run that is over stays as it is"


def test_the_page_prints(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(render(summary(), [film("ok")]), encoding="utf-8")
    tab.open(page, width=1280)
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert json.dumps(tab.complaints()) == "[]"

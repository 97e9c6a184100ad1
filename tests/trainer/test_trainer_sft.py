"""Supervised stages: the same protocol as GRPO's, the loss on the answers alone, and verdicts that move."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from toy import Toy

from envsim import registry
from trainer import warm_start
from trainer.attempts import attempts, live_worker
from trainer.checkpoint import load, reference, resolve, stop_tokens
from trainer.dataset import write_dataset
from trainer.imitation import IGNORED, answer_end, collate
from trainer.launch.local import LocalLauncher
from trainer.metrics import SftMetrics, stage_rows
from trainer.outcomes import read_end
from trainer.policy import TransformersPolicy
from trainer.profile import ProfileError, load_profile
from trainer.resume import resume_point
from trainer.sft import Demonstrations, DemonstrationTrainer, arguments
from trainer.spec import (
    DataRef,
    GenerationSettings,
    LoraSettings,
    ModelRef,
    SftResult,
    SftSettings,
    SftSpec,
    StageSpec,
    read_spec,
)
from trainer.stage import StageCancelled, StageInputError, run_sft

NUMBERS = {"steps": 6, "batch": 8, "micro_batch": 4, "learning_rate": 3e-3, "save_every": 2}


@pytest.fixture
def make_sft(tiny: ModelRef, toy_data: DataRef) -> Callable[..., SftSpec]:
    def make(**changes: Any) -> SftSpec:
        numbers = NUMBERS | {key: changes.pop(key) for key in list(changes) if key in SftSettings.model_fields}
        values: dict[str, Any] = {
            "environment": "toy:Toy",
            "style": "compact",
            "stage": 0,
            "seed": 7,
            "init_model": tiny,
            "dataset": toy_data,
            "generation": GenerationSettings(max_new_tokens=8),
            "sft": numbers,
            "threads": 1,
        }
        return SftSpec.model_validate(values | changes)

    return make


def rows_of(spec: SftSpec) -> Demonstrations:
    model, tokenizer = load(spec.init_model)
    return Demonstrations(spec, Toy(), Toy().instances(32), tokenizer, answer_end(model, tokenizer))


def test_specs_are_told_apart_by_their_kind(
    make_sft: Callable[..., SftSpec], make_spec: Callable[..., StageSpec]
) -> None:
    sft, grpo = make_sft(), make_spec()
    assert read_spec(sft.model_dump_json()) == sft
    assert read_spec(grpo.model_dump_json()) == grpo
    assert "kind" not in json.loads(grpo.model_dump_json())
    assert sft.identity() != make_sft(careless=0.1).identity()
    for text, message in (('{"kind": "dpo"}', "'grpo', 'sft'"), ("[]", "valid"), ('{"kind": "sft"}', "required")):
        with pytest.raises(ValidationError, match=message):
            read_spec(text)
    with pytest.raises(ValidationError, match="batch 8 is no multiple of micro_batch 3"):
        make_sft(micro_batch=3)


def test_rows_are_laid_out_for_all_steps_and_drawn_anew_each_turn(make_sft: Callable[..., SftSpec]) -> None:
    rows = rows_of(make_sft(steps=10))
    assert len(rows) == 80
    shown = [tuple(rows[place][0]) for place in range(80)]
    assert len(set(shown[:32])) == 32, "every task once before any comes again"
    by_task: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for place in range(80):
        prompt, answer = rows[place]
        by_task.setdefault(tuple(prompt), set()).add(tuple(answer))
    assert any(len(answers) > 1 for answers in by_task.values())
    again, other = rows_of(make_sft(steps=10)), rows_of(make_sft(steps=10, seed=8))
    assert [again[place] for place in range(80)] == [rows[place] for place in range(80)]
    assert [other[place] for place in range(80)] != [rows[place] for place in range(80)]


def test_the_answer_ends_as_the_template_ends_it_and_decoding_stops_there(tiny: ModelRef) -> None:
    for ref, text in ((tiny, "<|end|>"), (resolve("seedling"), "<|end|>")):
        model, tokenizer = load(ref)
        end = answer_end(model, tokenizer)
        assert tokenizer.decode([end]) == text
        assert end in stop_tokens(model, tokenizer)
    # What GGUF says ends a sequence is not always what ends a turn: the template's word counts.
    model, tokenizer = load(tiny)
    tokenizer.eos_token = "<|user|>"
    assert tokenizer.decode([answer_end(model, tokenizer)]) == "<|end|>"


def test_the_loss_is_the_mean_over_answer_tokens_whatever_the_padding(
    make_sft: Callable[..., SftSpec], tmp_path: Path
) -> None:
    spec = make_sft()
    model, tokenizer = load(spec.init_model)
    trainer = DemonstrationTrainer(
        model=model, args=arguments(spec, tmp_path), data_collator=partial(collate, pad_token=0)
    )
    rows = [([5, 6, 7, 8, 9], [10, 11, 1]), ([12, 13], [14, 1])]
    batch = collate(rows, tokenizer.pad_token_id)
    assert (batch["labels"] != IGNORED).sum() == 5
    found = float(trainer.compute_loss(model, batch).detach())
    alone = []
    for prompt, answer in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
        alone += [-float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(answer)]
    assert found == pytest.approx(sum(alone) / 5, rel=1e-4)
    assert trainer.answer_tokens == 5


def test_micro_batches_change_no_step(make_sft: Callable[..., SftSpec], tmp_path: Path) -> None:
    weights = []
    for micro in (8, 2):
        spec = make_sft(steps=2, micro_batch=micro)
        model, tokenizer = load(spec.init_model)
        trainer = DemonstrationTrainer(
            model=model,
            args=arguments(spec, tmp_path / str(micro)),
            train_dataset=Demonstrations(spec, Toy(), Toy().instances(32), tokenizer, 1),
            data_collator=partial(collate, pad_token=tokenizer.pad_token_id),
        )
        trainer.train()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*weights, atol=2e-4)
    assert (weights[0] - weights[1]).abs().mean() < 1e-6


@pytest.mark.loop
def test_a_supervised_stage_follows_the_protocol_and_resumes_to_the_very_same_weights(
    make_sft: Callable[..., SftSpec], tmp_path: Path
) -> None:
    spec, events = make_sft(), list[dict[str, Any]]()
    straight = run_sft(spec, tmp_path / "a", on_progress=events.append)
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert (straight.steps, straight.kind) == (6, "sft")
    assert straight.loss_last < straight.loss_first
    assert straight.answer_tokens == sum(row.tokens for row in stage_rows(attempts(tmp_path / "a"), SftMetrics))
    assert SftResult.model_validate_json((tmp_path / "a" / "result.json").read_text()).spec_hash == spec.identity()
    assert run_sft(spec, tmp_path / "a") == straight

    directory = tmp_path / "b"

    def kill() -> None:
        while resume_point(directory, spec.identity()).checkpoint is None:
            time.sleep(0.002)
        pid = live_worker(attempts(directory)[0])
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    resumed = run_sft(spec, directory)
    killer.join()
    assert resumed.attempt == 2
    assert resumed.resumed_from_step in (2, 4, 6)
    assert resumed.model.sha256 == straight.model.sha256
    assert resumed.answer_tokens == straight.answer_tokens
    with pytest.raises(StageInputError, match="another spec"):
        run_sft(make_sft(seed=8), tmp_path / "a")


@pytest.mark.loop
def test_a_supervised_stage_drains_and_goes_on_to_the_very_same_weights(
    make_sft: Callable[..., SftSpec], tmp_path: Path
) -> None:
    spec, stop, directory = make_sft(environment="toy:Patient"), threading.Event(), tmp_path / "drained"
    straight = run_sft(spec, tmp_path / "straight")

    def at_the_second_step(event: dict[str, Any]) -> None:
        if event.get("step") == 2:
            stop.set()

    with pytest.raises(StageCancelled):
        run_sft(spec, directory, stop=stop, on_progress=at_the_second_step, launcher=LocalLauncher(grace_seconds=60))
    ended, point = read_end(directory / "attempt-1"), resume_point(directory, spec.identity())
    assert ended is not None
    assert (ended.outcome, ended.detail) == ("terminated", f"SIGTERM after step {point.step} of 6; saved there")
    resumed = run_sft(spec, directory)
    assert (resumed.attempt, resumed.resumed_from_step, resumed.exact) == (2, point.step, True)
    assert (resumed.model.sha256, resumed.answer_tokens) == (straight.model.sha256, straight.answer_tokens)


@pytest.mark.loop
def test_weights_lost_to_nan_trip_a_supervised_stage(
    make_sft: Callable[..., SftSpec], tiny: ModelRef, tmp_path: Path
) -> None:
    spec = make_sft(learning_rate=1e30, max_grad_norm=0, tripwires={"window": 3, "gradient_norm_above": None})
    result = run_sft(spec, tmp_path / "000")
    assert result.tripped is not None
    assert (result.tripped.wire, result.tripped.figure) == ("loss_growth", None)
    assert (result.steps, result.weight_change, result.model.sha256) == (result.tripped.step, 0, tiny.sha256)
    assert result.steps < spec.steps
    assert run_sft(spec, tmp_path / "000") == result
    assert f"; stopped early, loss_growth 1.5 was crossed at step {result.steps}: " in warm_start._learnt(result)


@pytest.mark.loop
def test_demonstrations_teach_the_seedling_and_move_its_verdicts(tmp_path: Path) -> None:
    """Three agents, of which it has seen little: some steps and more of its plans are valid."""
    lake = registry.get("lake")
    config = lake.default_config().model_dump(mode="json")
    for size, knobs in config["sizes"].items():
        knobs["data_ratio"] = float(size == "3")
    drawn = lake.config_model.model_validate(config)
    tasks = lake.generate(drawn, 240, 0).instances
    spec = SftSpec(
        environment="lake",
        style="compact",
        stage=0,
        seed=0,
        init_model=resolve("seedling"),
        dataset=write_dataset(tasks, tmp_path / "dataset.jsonl"),
        generation=GenerationSettings(max_new_tokens=64),
        sft=SftSettings(steps=60, batch=32, learning_rate=1e-3, warmup_steps=5, schedule="linear", save_every=60),
        threads=1,
    )
    result = run_sft(spec, tmp_path / "stage")
    assert result.loss_last < 0.9 * result.loss_first
    held_out = lake.generate(drawn, 100, 1, split="probe").instances

    def valid(ref: ModelRef) -> float:
        prompts = [lake.prompt(task, "compact") for task in held_out]
        answers = TransformersPolicy(ref, threads=1).generate(prompts, max_new_tokens=64, temperature=0.0)
        return sum(lake.score(t, a[0].text).valid for t, a in zip(held_out, answers, strict=True)) / len(held_out)

    before, after = valid(spec.init_model), valid(result.model)
    assert after > before + 0.1, (before, after)


@pytest.mark.loop
def test_the_command_drains(tiny: ModelRef, tmp_path: Path) -> None:
    text = (Path(warm_start.__file__).parent / "profiles" / "smollm2.yaml").read_text()
    profile, out = tmp_path / "p.yaml", tmp_path / "out"
    profile.write_text(text)
    line = ["--profile", str(profile), "--model", tiny.path, "--directory", str(out), "--tasks", "20"]
    command = [sys.executable, "-m", "trainer.warm_start", *line, "--steps", "2000", "--evaluate", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not stage_rows(attempts(out / "stage"), SftMetrics):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker = live_worker(out / "stage" / "attempt-1")
    assert worker is not None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "run it again to go on" in said
    assert live_worker(out / "stage" / "attempt-1") is None
    ended = read_end(out / "stage" / "attempt-1")
    assert ended is not None
    assert ended.outcome == "terminated"


@pytest.mark.loop
def test_the_command_says_what_was_learnt(
    tiny: ModelRef, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(warm_start.__file__).parent / "profiles" / "smollm2.yaml").read_text()
    assert load_profile("smollm2").sft is not None
    profile = tmp_path / "p.yaml"
    profile.write_text(
        text.replace("style: full", "style: compact").replace("max_new_tokens: 256", "max_new_tokens: 96")
    )
    base = ["--profile", str(profile), "--model", tiny.path, "--directory", str(tmp_path / "out"), "--tasks", "40"]
    assert warm_start.main([*base, "--steps", "2", "--evaluate", "8"]) == 0
    said = capsys.readouterr().out
    assert "2 steps, " in said
    assert "before: 0.0 % valid (0.0 to 32.4), 0.0 % optimal (0.0 to 32.4) of 8 tasks: parse_error 8" in said
    assert str(tmp_path / "out" / "stage" / "model") in said
    assert reference(tmp_path / "out" / "stage" / "model").sha256 != tiny.sha256
    assert warm_start.main([*base, "--steps", "0"]) == 2
    assert "sft.steps = 0" in capsys.readouterr().err
    assert warm_start.main([*base, "--tasks", "0"]) == 2
    assert "--tasks is 0, expected 1 or more" in capsys.readouterr().err


def test_the_profile_of_the_warm_start_makes_a_short_stage_of_any_model(tiny: ModelRef, toy_data: DataRef) -> None:
    profile = load_profile("smollm2-warm")
    spec = warm_start.sft_spec(profile, "toy:Toy", tiny, toy_data, seed=3)
    assert (spec.style, spec.threads, spec.init_model) == ("compact", 1, tiny)
    assert spec.sft == profile.sft
    assert spec.sft.tripwires is not None
    assert warm_start.sft_spec(profile, "toy:Toy", tiny, toy_data, seed=3, steps=7).steps == 7
    with pytest.raises(ProfileError, match=r"sft\.steps = 0"):
        warm_start.sft_spec(profile, "toy:Toy", tiny, toy_data, seed=3, steps=0)


def test_a_profile_without_numbers_is_named(tiny: ModelRef, toy_data: DataRef) -> None:
    with pytest.raises(ProfileError, match="profile seedling has no section 'sft'"):
        warm_start.sft_spec(load_profile("seedling"), "toy:Toy", tiny, toy_data, seed=0)


@pytest.mark.loop
def test_an_adapter_is_merged_after_supervision(make_sft: Callable[..., SftSpec], tmp_path: Path) -> None:
    result = run_sft(make_sft(lora=LoraSettings(rank=4, alpha=8)), tmp_path / "000")
    assert result.loss_last < result.loss_first
    assert not list(Path(result.model.path).glob("adapter*"))
    load(result.model)

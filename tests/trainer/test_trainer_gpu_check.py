"""The GPU check on the CPU: every part for real at a tiny size, and what becomes of a part that fails or hangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from trainer import gpu_check
from trainer.checkpoint import load_tokenizer, resolve
from trainer.coin import Coin
from trainer.devices import FORWARD, TRAINED, known_devices, peak_tflops, share_of_peak
from trainer.gpu_check import EXIT_NO_GPU, LIMITS, main, run_parts
from trainer.gpu_parts import GPU, size_of
from trainer.seedling.model import build_model


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA A10G", None),
        ("x86_64", None),
    ],
)
def test_peaks_are_those_of_the_very_device(name: str, peak: float | None) -> None:
    assert peak_tflops(name) == peak


def test_the_share_of_the_peak_follows_the_rule_of_six_n_d() -> None:
    assert all(known.source for known in known_devices())
    # 100 M parameters, a million tokens a second: 600 TFLOP/s.
    assert share_of_peak(TRAINED * 1e8 * 1e6, 1.0, 1200) == pytest.approx(0.5)
    assert share_of_peak(FORWARD * 1e8 * 1e6, 1.0, 1200) == pytest.approx(1 / 6)
    assert share_of_peak(1.0, 1.0, None) is None


def test_the_check_takes_less_than_ten_minutes_and_about_100_million_parameters() -> None:
    assert sum(LIMITS.values()) + 30 < 600
    with torch.device("meta"):
        assert 90e6 < size_of(build_model(load_tokenizer(resolve("seedling")), 0, GPU.shape)) < 110e6  # type: ignore[arg-type]


def test_half_of_all_answers_to_a_coin_are_right() -> None:
    coin = Coin()
    [task, other] = coin.tasks(2)
    assert task.hash != other.hash
    verdicts = [coin.score(task, chr(code)) for code in range(32, 126)]
    assert sum(verdict.valid for verdict in verdicts) / len(verdicts) == 0.5
    assert [coin.score(task, text).outcome for text in ("", "a", "ba", "bb")] == list(Coin.outcomes)
    assert coin.score(task, coin.reference_answer(task, "compact")).optimal


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == EXIT_NO_GPU
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert "no GPU: torch" in line


@pytest.mark.loop
def test_every_part_runs_on_the_cpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["--cpu-dry"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert report["passed"]
    assert list(report["parts"]) == ["bf16", "training", "generation", "grpo"]
    for name, part in report["parts"].items():
        assert part["passed"], part
        assert part["share_of_peak"] == "unknown"
        assert part["tflops"] >= 0
        assert (part["tokens_per_second"] is None) == (name == "bf16")
        assert any(line.startswith("│ " + name) and "passed" in line for line in table)
    assert report["parts"]["grpo"]["weight_change"] > 0


@pytest.mark.loop
def test_a_part_that_fails_or_hangs_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no model to train; and the last part gets no time at all.
    monkeypatch.setattr(gpu_check, "GROUPS", (("training", "bf16"), ("generation",)))
    monkeypatch.setitem(LIMITS, "generation", 0.0)
    monkeypatch.setattr(gpu_check, "LEAVE_SECONDS", 0.5)
    found = run_parts(tmp_path, dry=True, peak=None)
    assert [found[name]["passed"] for name in ("training", "bf16", "generation")] == [False, True, False]
    assert "model" in found["training"]["why"]
    assert found["generation"]["why"].startswith("not done after")

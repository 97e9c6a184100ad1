"""The presets as data, and which combinations of preset, device, rollouts and adapters cannot work.

Sharding of the weights themselves (ZeRO-3, FSDP) is not offered: a stage's model is saved from one process, and weight
transfer to a vLLM server is known to hang where every rank gathers at its own pace.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal

from envsim.documents import parse_yaml
from trainer.spec import Frozen, GrpoSettings, Ranks

FILE = "presets.yaml"


class Processes(Frozen):
    least: int
    most: int
    usual: int


class Preset(Frozen):
    """One way to share a stage's work."""

    says: str
    device: Literal["cpu", "cuda"]
    processes: Processes
    accelerate: str | None = None
    """File of ``trl/accelerate_configs``, without its ending."""
    rollouts: tuple[str, ...]
    lora: bool | None = None
    """Whether adapters must be (true) or must not be (false) trained; None = either."""


@cache
def presets() -> dict[str, Preset]:
    """All presets by name."""
    text = (files("trainer.launch") / FILE).read_text(encoding="utf-8")
    return {name: Preset.model_validate(data) for name, data in parse_yaml(text, FILE).items()}


def unworkable(ranks: Ranks, grpo: GrpoSettings, *, device: str, rollouts: str, lora: bool) -> str | None:
    """Why a stage cannot be carried out under a preset, in one line; None if it can."""
    name, processes = ranks.preset, ranks.processes
    if name not in presets():
        return unknown("preset", name, tuple(presets()))
    preset = presets()[name]
    least, most = preset.processes.least, preset.processes.most
    micro = grpo.micro_batch or max(1, grpo.batch // processes)
    faults = {
        f"launch.processes is {processes}, expected {least} to {most} for preset {name} ({preset.says})": (
            not least <= processes <= most
        ),
        f"preset {name} needs device {preset.device}, got {device}": device != preset.device,
        f"preset {name} needs rollouts {' or '.join(preset.rollouts)}, got {rollouts}{_because(name, rollouts)}": (
            rollouts not in preset.rollouts
        ),
        f"preset {name} trains adapters, but there is no lora section; add one or use preset 1gpu": (
            preset.lora is True and not lora
        ),
        f"preset {name} trains all weights, but there is a lora section; remove it or use preset 1gpu-lora": (
            preset.lora is False and lora
        ),
        f"grpo.batch {grpo.batch} is no multiple of {processes} processes x grpo.micro_batch {micro}; every process "
        "must have the same number of whole micro-batches": grpo.batch % (processes * micro) != 0,
    }
    return next((fault for fault, there in faults.items() if there), None)


def unknown(what: str, value: str, names: tuple[str, ...]) -> str:
    """One line for a name that is not known, with the nearest that is."""
    near = get_close_matches(value, names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return f"no {what} {value!r}{hint}; expected one of {list(names)}"


def _because(name: str, rollouts: str) -> str:
    if rollouts == "vllm_server":
        return "; TRL sends weights to a server over NCCL, which needs GPUs apart from the server's: preset server"
    if name == "cpu":
        return "; vLLM's CPU build cannot take new weights in place"
    return ""

"""Peaks of devices as data, and the share of it that a model's work comes to.

A forward pass costs 2 floating point operations a parameter and token, forward and backward together 6 (the 6 N D rule:
matrix products alone, attention's own left out), so the shares are a little lower than what the device really does.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from pydantic import Field, TypeAdapter

from envsim.documents import parse_yaml
from trainer.spec import Frozen

FORWARD = 2
TRAINED = 6
"""Operations a parameter and token."""


class Device(Frozen):
    """``device`` is a regular expression for the whole name; ``tflops`` counts dense bfloat16 products."""

    device: str
    tflops: float = Field(gt=0)
    source: str


@cache
def known_devices() -> list[Device]:
    text = (files("trainer") / "devices.yaml").read_text(encoding="utf-8")
    return TypeAdapter(list[Device]).validate_python(parse_yaml(text, "trainer/devices.yaml"))


def peak_tflops(name: str) -> float | None:
    """The peak of the device of that name; None for one that is not in the table, such as a part of a device."""
    return next((known.tflops for known in known_devices() if re.fullmatch(known.device, name)), None)


def share_of_peak(operations: float, seconds: float, peak: float | None) -> float | None:
    """Which part of the peak the operations of so many seconds came to; None if the peak is not known."""
    return None if peak is None else operations / seconds / (peak * 1e12)

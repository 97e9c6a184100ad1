"""Processor time and memory of this process and of those that work for it, wherever they were started.

The kernel counts the children that were waited for. What works for this process as a child of another one is told to
`tell` by whoever heard of its end, until the kernel counts it too: once that other one was waited for itself.
"""

from __future__ import annotations

import resource
import sys
from typing import NamedTuple


class Usage(NamedTuple):
    """Of ended processes."""

    cpu_seconds: float = 0.0
    """User and system time of all."""
    peak: int = 0
    """Largest resident size of one, as the kernel counts it: in KiB, on macOS in bytes."""


_told: dict[int, Usage] = {}


def tell(parent: int, ended: Usage) -> None:
    """A child of the process ``parent``, which is one of ours, has ended."""
    before = _told.get(parent, Usage())
    _told[parent] = Usage(before.cpu_seconds + ended.cpu_seconds, max(before.peak, ended.peak))


def counted(parent: int) -> None:
    """``parent`` was waited for, and with it all that was told of."""
    _told.pop(parent, None)


def cpu_seconds() -> float:
    """Processor time of this process and of those that worked for it and have ended."""
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    told = sum(one.cpu_seconds for one in _told.values())
    return round(sum(one.ru_utime + one.ru_stime for one in found) + told, 2)


def own_peak_gib() -> float:
    """Largest resident size of this process so far."""
    return _gib(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def largest_peak_gib() -> float:
    """That of the largest process that worked for this one and has ended."""
    told = (one.peak for one in _told.values())
    return _gib(max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, *told, 0))


def _gib(peak: int) -> float:
    return peak * (1 if sys.platform == "darwin" else 1024) / 2**30

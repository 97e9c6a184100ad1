"""What a test leaves behind is put in order, lest it take a core from those after it, or make them deaf to signals."""

from __future__ import annotations

import signal
from collections.abc import Generator

import pytest
from orphans import end_left_by, mark_session

from trainer.processes import DRAIN_RANKS

SIGNALS = (signal.SIGTERM, signal.SIGINT, DRAIN_RANKS)


def pytest_configure() -> None:
    mark_session()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A worker ignores SIGTERM once it has trained; a test that trains in its own process would hand that on to all
    processes that later tests start."""
    before = [signal.getsignal(number) for number in SIGNALS]
    try:
        return (yield)
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.failed:
        end_left_by(item.nodeid)
    return report

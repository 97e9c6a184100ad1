"""A test that fails may leave a training behind, which would take a core from all tests after it: it is ended."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from orphans import end_left_by, mark_session


def pytest_configure() -> None:
    mark_session()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.failed:
        end_left_by(item.nodeid)
    return report

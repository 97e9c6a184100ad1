"""docs/envsim-checks.md: every command there selects tests that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/envsim-checks.md").read_text(encoding="utf-8")
SELECTIONS = re.findall(r"`pytest -k \"?([^\"`]+)\"?`", PAGE)


def terms(expression: str) -> set[str]:
    return set(re.findall(r"\w+", expression)) - {"and", "or", "not"}


@pytest.fixture(scope="module")
def names() -> str:
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "tests/envsim"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout


def test_the_page_selects_tests() -> None:
    assert len(SELECTIONS) > 10


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_term_selects_something(selection: str, names: str) -> None:
    missing = [term for term in terms(selection) if term not in names]
    assert not missing, f"docs/envsim-checks.md names tests that are not there: {missing}"

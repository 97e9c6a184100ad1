"""docs/simulator.md: every Python block runs, and prints what stands under it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)


def run(code: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, str(PAGE), "exec"), {})
    # An editor strips what no reader sees at the end of a line.
    return "\n".join(line.rstrip() for line in said.getvalue().splitlines()) + "\n"


def test_every_block_has_its_output() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```python") == 5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("code", "expected"), BLOCKS)
def test_blocks_print_what_the_page_says(
    code: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(code) == expected

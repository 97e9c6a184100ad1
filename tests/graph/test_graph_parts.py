"""A run whose evaluations are split into tasks."""

from __future__ import annotations

import io
import os
from pathlib import Path

import parity
import pytest
import yaml
from rich.console import Console

from graph.prepare import prepare
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings
from graph.timing import Clock
from graph.work import start_pointer

pytestmark = pytest.mark.loop


def test_a_run_evaluates_in_parts_where_its_profile_asks_for_them(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tasks import the environment by name.
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(Path(parity.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    parts = tmp_path / "parts.yaml"
    parts.write_text(yaml.safe_dump(yaml.safe_load(profile.read_text()) | {"launch": {"shards": 2}}))
    reports = {}
    for name, path in (("whole", profile), ("parts", parts)):
        prepared = prepare(RunSettings(environment="parity:Parity", profile=str(path), stages=0))
        (tmp_path / name).mkdir()
        work = new_work(prepared, RunDir(tmp_path / name), Console(file=io.StringIO()), Clock())
        reports[name] = work.evaluate(start_pointer(work, 0.0), "validation")
    assert reports["whole"].model_dump(exclude={"seconds"}) == reports["parts"].model_dump(exclude={"seconds"})
    assert not list((tmp_path / "parts").rglob("*.shards"))

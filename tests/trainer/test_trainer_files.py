"""Files that are whole or absent: a write that fails names its target and leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainer import files


def test_a_full_disk_names_the_file_and_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "x.json"
    files.write_atomic(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as refusal:
        files.write_atomic(path, "new")
    assert (refusal.value.errno, refusal.value.filename) == (errno.ENOSPC, str(path))
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("x.json", "old")]


def test_only_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    alive = {f".x.{os.getpid()}.tmp", ".x.1.tmp", ".x.tmp", "x.4194305.tmp"}
    for name in (*alive, ".x.4194305.tmp", f".x.{10**30}.tmp"):
        (tmp_path / "deep" / name).write_text("")
    files.remove_stale(tmp_path)
    assert {path.name for path in (tmp_path / "deep").iterdir()} == alive

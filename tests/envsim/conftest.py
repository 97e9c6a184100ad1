"""Anchor, test and validation made anew, once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsim.lake import sets


@pytest.fixture(scope="session")
def sets_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the stratified sets; making them compares their checksums."""
    directory = tmp_path_factory.mktemp("sets")
    sets.frozen_set("anchor", directory=directory)
    return directory

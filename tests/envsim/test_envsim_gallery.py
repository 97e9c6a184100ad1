"""The gallery in docs is what its sources make now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
SOURCES = {"gallery/make.py", "gallery/pictures.yaml"}


def _files(directory: Path) -> dict[str, bytes]:
    paths = [directory / "gallery.md", *sorted((directory / "gallery").rglob("*"))]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def test_the_gallery_is_fresh(tmp_path: Path) -> None:
    """Byte for byte, with no file too many. Made anew by the command below."""
    command = [sys.executable, "docs/gallery/make.py", "--out", str(tmp_path)]
    subprocess.run(command, cwd=DOCS.parent, check=True, capture_output=True, timeout=120)
    made, kept = _files(tmp_path), _files(DOCS)
    stale = sorted(name for name in made.keys() | kept.keys() - SOURCES if made.get(name) != kept.get(name))
    assert not stale, f"run python docs/gallery/make.py; not as made: {stale}"


def test_the_page_shows_every_picture_and_is_light() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    pictures = sorted((DOCS / "gallery").glob("*.svg"))
    assert re.findall(r'<img src="gallery/([^"]+)"', page) != []
    assert sorted(re.findall(r'<img src="gallery/([^"]+)"', page)) == [path.name for path in pictures]
    assert page.count("python -m envsim render ") == len(pictures)
    assert sum(path.stat().st_size for path in pictures) < 300_000

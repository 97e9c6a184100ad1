"""The published results are those of the plans that lie here, of seeds that confirm them, and say what we say."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph.study.page import kinds
from graph.study.pictures import write_pictures
from graph.study.plan import Loaded, load_plan, seeds_of
from graph.study.provenance import Confirmation
from graph.study.reproduce import PUBLISHED
from graph.study.rows import Row, one_start, read_rows
from graph.study.table import write_tables
from graph.study.words import words

STUDIES = Path(__file__).parents[2] / "studies"
PLACES = sorted(path.parent for path in STUDIES.glob(f"results/*/{PUBLISHED}"))


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: place.name)
def place(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture(scope="module")
def loaded(place: Path) -> Loaded:
    return load_plan(STUDIES / f"{place.name}.yaml")


@pytest.fixture(scope="module")
def rows(place: Path, loaded: Loaded) -> list[Row]:
    return read_rows(place / PUBLISHED, loaded.hash)


def test_there_are_some() -> None:
    assert "main" in {place.name for place in PLACES}


def test_they_are_confirming_runs_of_one_plan_and_one_code(loaded: Loaded, rows: list[Row]) -> None:
    confirmed = Confirmation.model_validate_json(loaded.path.with_suffix(".confirmed.json").read_bytes())
    assert kinds(rows) == "confirming"
    assert {row.key for row in rows} <= set(seeds_of(loaded.plan, "confirming"))
    assert ({row.plan for row in rows}, {row.code for row in rows}) == ({confirmed.plan}, {confirmed.code})
    one_start(rows)


def test_the_table_is_made_of_the_rows(place: Path, rows: list[Row], tmp_path: Path) -> None:
    _, text = write_tables(rows, tmp_path)
    assert text.read_bytes() == (place / "table.csv").read_bytes()


def test_the_findings_are_those_of_the_rows(place: Path, loaded: Loaded, rows: list[Row]) -> None:
    assert words(loaded, rows) == (place / "findings.md").read_text()


def test_the_pictures_are_of_the_rows(place: Path, loaded: Loaded, rows: list[Row], tmp_path: Path) -> None:
    write_pictures(loaded, rows, tmp_path)
    published, drawn = (
        {one.name: one.read_bytes() for one in path.iterdir()} for path in (place / "figures", tmp_path)
    )
    assert published == drawn


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in (STUDIES / "results").rglob("*") if path.is_file()) < 5_000_000

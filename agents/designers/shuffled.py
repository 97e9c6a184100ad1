"""A control: the current checkpoint designs from evidence that is not its own.

With ``run`` it is shown what another run measured at the same stage. Without, what was measured here is dealt to the
wrong cells: a cyclic shift by a seeded number of places, so that no cell keeps its own. Only the knobs stay those of
this run, because the changes apply to them. All roles are shown the same; the gates measure for themselves.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.designers.models import ModelDesigner
from agents.schemas import CellEvidence, Evidence, FailureCluster, FailureExample
from envsim.api import Environment
from envsim.documents import DocumentError, read_json

FINISHED = "result.json"
"""A run that came to its end holds it."""


class Shuffled(ModelDesigner):
    def __init__(self, run: Path | None) -> None:
        super().__init__("shuffled", "inherit")
        self._run = run

    def check(self, environment: Environment, config: Any, stages: int) -> None:  # noqa: ARG002  the interface
        if self._run is None:
            return
        if not (self._run / FINISHED).is_file():
            raise ValueError(f"designer shuffled: run: {self._run} is not finished: it has no {FINISHED}")
        there = len(evidence_files(self._run))
        if there < stages:
            raise ValueError(
                f"designer shuffled: run: {self._run} has {there} designed stages, and this run may have {stages}; "
                "give a longer one, or fewer stages"
            )
        for stage in range(1, stages + 1):
            read_evidence(self._run, stage, environment.cells())

    def content(self) -> Any:
        """What the other run's roles were shown."""
        if self._run is None:
            return None
        return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in evidence_files(self._run)}

    def see(self, evidence: Evidence, seed: int) -> Evidence:
        return deal(evidence, seed) if self._run is None else of_another_run(evidence, self._run)


def deal(evidence: Evidence, seed: int) -> Evidence:
    """The same evidence with every cell's measurements under another cell's name."""
    cells = [cell.cell for cell in evidence.cells]
    shift = random.Random(seed).randrange(1, max(2, len(cells)))
    name = {cell: cells[(place + shift) % len(cells)] for place, cell in enumerate(cells)}
    measured = {name[cell.cell]: cell for cell in evidence.cells}
    return evidence.model_copy(
        update={
            "cells": [_under(own, measured[own.cell]) for own in evidence.cells],
            "anchor": {name[cell]: valid for cell, valid in evidence.anchor.items()},
            "failures": [_moved(one, name) for one in evidence.failures],
            "clusters": [_moved_cluster(one, name) for one in evidence.clusters],
            "statistics": [one.model_copy(update={"cell": name[one.cell]}) for one in evidence.statistics],
            "history": [
                one.model_copy(update={"measured": {name[cell]: valid for cell, valid in one.measured.items()}})
                for one in evidence.history
            ],
        }
    )


def _moved(one: FailureExample, name: Mapping[str, str]) -> FailureExample:
    return one.model_copy(update={"cell": name[one.cell]})


def _moved_cluster(one: FailureCluster, name: Mapping[str, str]) -> FailureCluster:
    return one.model_copy(
        update={
            "cells": {name[cell]: n for cell, n in one.cells.items()},
            "typical": _moved(one.typical, name),
            "odd": None if one.odd is None else _moved(one.odd, name),
        }
    )


def of_another_run(evidence: Evidence, run: Path) -> Evidence:
    """What another run measured at this stage, beside this run's knobs. Raises ValueError in one line."""
    other = read_evidence(run, evidence.stage, [cell.cell for cell in evidence.cells])
    measured = {cell.cell: cell for cell in other.cells}
    cells = [_under(own, measured[own.cell]) for own in evidence.cells]
    return other.model_copy(update={"cells": cells, "open_knobs": evidence.open_knobs})


def evidence_files(run: Path) -> list[Path]:
    """Those of a run's designed stages, in order."""
    return sorted((run / "stages").glob("[0-9][0-9][0-9]/evidence.json"))


def read_evidence(run: Path, stage: int, cells: Sequence[str]) -> Evidence:
    """What a run's roles were shown at a stage. Raises ValueError in one line, also for evidence of other cells."""
    file = run / "stages" / f"{stage:03d}" / "evidence.json"
    try:
        other = Evidence.model_validate(read_json(file))
    except (DocumentError, ValidationError) as error:
        why = error if isinstance(error, DocumentError) else f"{file} holds no evidence of this version"
        raise ValueError(f"designer shuffled: {why}; give a finished run with at least as many stages") from error
    found = [cell.cell for cell in other.cells]
    if set(found) != set(cells):
        raise ValueError(f"designer shuffled: {file} is of another environment: cells {', '.join(found)}")
    return other


def _under(own: CellEvidence, measured: CellEvidence) -> CellEvidence:
    return measured.model_copy(update={"cell": own.cell, "knobs": own.knobs})

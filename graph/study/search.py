"""``python -m graph.study pilot``: is there a curriculum that matters at all? An oracle found by search, beside chance.

Candidates put a bell of data over the cells, whose centre may move from stage to stage. They are halved by successive
halving (Jamieson and Talwalkar, 2016): each round gives every candidate that is left one more seed and keeps the better
half by the anchor score of its champions. The sealed test set is looked at once, in the end: the best candidate,
trained longer, beside random configurations on seeds that the search has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field

from agents.changes import SHARE_FLOOR, SHARE_KNOB
from envsim import registry
from envsim.api import Environment, EnvsimError
from graph.exits import Exit
from graph.settings import Frozen, SettingsError
from graph.study.carry import Study, carry_out, locked
from graph.study.command import (
    begin,
    check_runs,
    given,
    parser,
    stopped,
    tell,
    with_signals,
    work_through,
)
from graph.study.effects import champion_anchor
from graph.study.plan import Contrast, Loaded, Search, load_plan, resolved
from graph.study.provenance import code_version
from graph.study.rows import Row, macro_of, read_rows
from trainer.files import write_atomic

CHANCE = "random"
ORACLE = "oracle"


class Candidate(Frozen):
    """A bell over the ranks of the cells, from 0 for the easiest one: where it begins and ends, and how wide it is."""

    begins: float
    ends: float
    width: float
    levels: dict[str, float] = Field({})
    """Other knobs, the same for every cell."""

    def shares(self, cells: int, part: float) -> list[float]:
        """The share of each cell after a part in [0, 1] of the curriculum; none below the floor."""
        centre = self.begins + part * (self.ends - self.begins)
        bell = np.exp(-((np.arange(cells) - centre) ** 2) / (2 * self.width**2))
        return [SHARE_FLOOR + (1 - SHARE_FLOOR * cells) * float(one) for one in bell / bell.sum()]


def candidates(search: Search, cells: int) -> dict[str, Candidate]:
    """The candidates of a search by name, the same for the same seed.

    A Latin hypercube (McKay, Beckman and Conover 1979), so that few of them cover where bells begin, end, and how wide
    they are: each of n equal parts of an axis holds one of n candidates.
    """
    n, rng = search.candidates, np.random.default_rng(search.seed)
    places = [(rng.permutation(n) + rng.random(n)) / n for _ in range(3 + len(search.levels))]
    levels = [
        {
            name: low + float(place[number]) * (high - low)
            for (name, (low, high)), place in zip(search.levels.items(), places[3:], strict=True)
        }
        for number in range(n)
    ]
    centres, widest = search.centres or [0.0, cells - 1.0], search.widths or [0.7, cells / 2]
    begins, ends = (centres[0] + (centres[1] - centres[0]) * places[axis] for axis in (0, 1))
    widths = widest[0] + (widest[1] - widest[0]) * places[2]
    return {
        f"c{number:02d}": Candidate(
            begins=first, ends=last if search.moving else first, width=width, levels=levels[number]
        )
        for number, (first, last, width) in enumerate(zip(*map(np.ndarray.tolist, (begins, ends, widths)), strict=True))
    }


def pilot(arguments: Sequence[str]) -> int:
    """Search, then compare. Returns the exit code: 0 whether an oracle was found or not, which the last line says."""
    options = given(parser("python -m graph.study pilot"), arguments)
    for flag in ("seeds", "arms", "merge", "confirm", "report", "dry_run"):
        if getattr(options, flag):
            raise SettingsError(f"--{flag.replace('_', '-')} is of a study; the pilot has seeds and arms of its own")
    base = load_plan(options.plan)
    if base.plan.search is None or CHANCE not in base.plan.arms:
        raise SettingsError(f"{options.plan}: a pilot needs a section 'search' and an arm '{CHANCE}' to compare with")
    directory = options.directory or Path("runs") / f"study-{base.plan.name}"
    with locked(directory):
        made = Made(base, directory, base.plan.search)
        code = code_version()
        halving = begin(options, made.searched, check_runs(made.searched), directory / "search", code)
        with_signals(halving)
        best = halved(halving, made.search, list(made.candidates), options.parallel)
        if isinstance(best, Exit):
            return best
        tell(f"oracle: {best}, {made.candidates[best]}")
        compared = made.compared(best)
        final = begin(options, compared, check_runs(compared), directory / "oracle", code)
        with locked(final.directory):
            jobs = [(arm, seed) for seed in made.fresh_seeds() for arm in (ORACLE, CHANCE)]
            exit_code = work_through(final, jobs, options.parallel, jobs)
        if exit_code == Exit.DONE:
            tell(verdict(read_rows(final.rows, final.loaded.hash), "test_sampled" if base.plan.samples else "test"))
        return exit_code


class Made:
    """What a pilot makes of its plan: the plan of its search, and that of the comparison in the end."""

    def __init__(self, base: Loaded, directory: Path, search: Search) -> None:
        self.base, self.directory, self.search = base, directory, search
        settings = base.arms[CHANCE]
        self.environment = registry.get(settings.environment)
        self.candidates = candidates(search, len(self.environment.cells()))
        own: dict[str, Any] = {
            "name": f"{base.plan.name}-search",
            "primary": None,
            "secondary": [],
            "fewer": {},
            "equal": False,
        }
        arms = {name: self.arm(name, one) for name, one in self.candidates.items()}
        self.searched = resolved(base.plan.model_copy(update={**own, "arms": arms}), base.path, base.files)

    def arm(self, name: str, candidate: Candidate) -> dict[str, Any]:
        """The run settings of a candidate: stage 000 on its beginning, and what follows by a schedule if it moves."""
        first, *later = schedule(self.environment, candidate, self.search.stages)
        try:
            config = self.environment.with_values(self.environment.default_config(), first)
        except EnvsimError as error:
            raise SettingsError(f"{self.base.path}: search.levels: {error}") from error
        own: dict[str, Any] = {"initial_config": config.model_dump(mode="json"), "designer": "fixed"}
        if candidate.begins != candidate.ends and later:
            path = (self.directory / "schedules" / f"{name}.yaml").absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(
                path, yaml.safe_dump({"environment": self.environment.name, "repeat_last": True, "stages": later})
            )
            own |= {"designer": {"name": "schedule", "file": str(path)}, "gates": "off"}
        return own

    def compared(self, best: str) -> Loaded:
        """The oracle, trained longer, beside chance."""
        settings = self.base.plan.settings
        oracle = {**self.searched.plan.arms[best], "token_budget": int(settings["token_budget"] * self.search.longer)}
        arms = {ORACLE: oracle, CHANCE: self.base.plan.arms[CHANCE]}
        return self._plan("oracle", arms, Contrast(treatment=ORACLE, control=CHANCE))

    def _plan(self, name: str, arms: dict[str, dict[str, Any]], primary: Contrast | None) -> Loaded:
        own: dict[str, Any] = {"primary": primary, "secondary": [], "fewer": {}, "equal": False}
        plan = self.base.plan.model_copy(update={"name": f"{self.base.plan.name}-{name}", "arms": arms, **own})
        return resolved(plan, self.base.path, self.base.files)

    def fresh_seeds(self) -> list[int]:
        """Development seeds after those that the search may have used."""
        first = self.base.plan.seeds.development + rounds(self.search.candidates)
        return list(range(first, first + self.base.plan.seeds.n))


def schedule(environment: Environment, candidate: Candidate, stages: int) -> list[dict[str, float]]:
    """The shares of each stage by knob, and the candidate's levels, which are the same in all."""
    cells = environment.cells()
    parts = [stage / max(1, stages - 1) for stage in range(stages)]
    levels = {f"{cell}.{name}": round(level, 4) for cell in cells for name, level in candidate.levels.items()}
    return [
        {
            f"{cell}.{SHARE_KNOB}": round(share, 4)
            for cell, share in zip(cells, candidate.shares(len(cells), part), strict=True)
        }
        | levels
        for part in parts
    ]


def rounds(n: int) -> int:
    """Rounds of halving that leave one of n."""
    return max(1, (n - 1).bit_length())


def halved(study: Study, search: Search, names: Sequence[str], parallel: int) -> str | Exit:
    """The name of the best candidate, or the exit code of what came in between."""
    left = list(names)
    first = study.loaded.plan.seeds.development
    for number in range(rounds(search.candidates)):
        study.directory.mkdir(parents=True, exist_ok=True)
        known = {row.key: row for row in read_rows(study.rows, study.loaded.hash)}
        jobs = [(name, first + number) for name in left if (name, first + number) not in known]
        failed = carry_out(study, jobs, known=len(left) - len(jobs), parallel=parallel)
        if study.stop.is_set():
            return stopped(study)
        if failed:
            tell(f"{len(failed)} runs failed; the same command tries them again")
            return Exit.FAILED
        scores = means(read_rows(study.rows, study.loaded.hash), left)
        left = sorted(left, key=lambda name: -scores[name])[: max(1, len(left) // 2)]
        tell(f"round {number + 1}: {', '.join(f'{name} {100 * scores[name]:.1f}' for name in left)} % anchor, kept")
    return left[0]


def means(rows: Sequence[Row], names: Sequence[str]) -> Mapping[str, float]:
    """Mean anchor validity of the champions of each candidate's runs."""
    return {name: float(np.mean([champion_anchor(row) for row in rows if row.arm == name])) for name in names}


def verdict(rows: Sequence[Row], sealed: str) -> str:
    """Whether the oracle beats chance on a sealed set by two standard deviations over seeds, pooled from both arms."""
    values = {arm: [macro_of(row.after[sealed], "valid") for row in rows if row.arm == arm] for arm in (ORACLE, CHANCE)}
    gain = float(np.mean(values[ORACLE]) - np.mean(values[CHANCE]))
    if min(len(one) for one in values.values()) < 2:
        return f"oracle - random: {100 * gain:+.1f} points; one seed says nothing of the spread"
    spread = float(np.sqrt(np.mean([np.var(one, ddof=1) for one in values.values()])))
    shown = "shown" if gain >= 2 * spread else "not shown"
    return (
        f"oracle - random: {100 * gain:+.1f} points of validity ({sealed}), standard deviation over seeds "
        f"{100 * spread:.1f}: a curriculum that matters by two of them is {shown}"
    )

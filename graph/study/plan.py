"""The plan of a study: a YAML file that is fixed, and hashed, before the runs that it is about.

An arm is a mapping of run settings. What would make the comparison unfair (model, sets, seeds, the length of training)
belongs to the ``settings`` that all arms share, and an arm that names it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from agents.designers import designer_files, designer_hash
from agents.roles import load_roles, roles_hash
from envsim.documents import DocumentError, read_yaml
from graph.settings import Frozen, RunSettings, SettingsError, explain, parse_settings
from graph.study.rows import MOST_SAMPLES
from trainer.profile import ProfileError, load_profile, shipped_profiles
from trainer.spec import canonical_hash

DEVELOPMENT = range(0, 100)
"""Seeds for everything that is tried out."""
CONFIRMING = range(1000, 2000)
"""Seeds for what a committed plan is run on, once."""
ORACLES = ("token_budget", "initial_config")
ROLE_SUFFIXES = (".yaml", ".j2")
OWN = ("environment", "profile", "seed", "budget", "stages", "reward", "acceptance", "benchmark", *ORACLES)
"""Run settings that decide from where, on what and how much is trained: those of all arms."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
OUTCOMES: Mapping[str, str] = {
    "test_valid": "valid on the sealed test set, mean over cells",
    "test_sampled": "valid on the sealed test set, mean over cells and sampled answers",
    "test_optimal": "optimal on the sealed test set, mean over cells",
    "test_worst_decile": "valid on the sealed test set, worst tenth of seeds x cells",
    "anchor_area": "valid on the anchor set, mean over the tokens of the budget",
    "anchor_matched": "valid on the anchor set when the first of a pair of runs had spent its tokens",
    "stage_gain": "gain of the last designed stage in valid on the anchor set, kept or not",
    "benchmark_3": "valid on the benchmark, 3 agents",
    "benchmark_4": "valid on the benchmark, 4 agents",
    "benchmark_5": "valid on the benchmark, 5 agents",
}
"""What arms are compared by, all in [0, 1]."""
Outcome = Literal[
    "test_valid",
    "test_sampled",
    "test_optimal",
    "test_worst_decile",
    "anchor_area",
    "anchor_matched",
    "stage_gain",
    "benchmark_3",
    "benchmark_4",
    "benchmark_5",
]


class Contrast(Frozen):
    """Two arms and what they are compared by."""

    treatment: Name
    control: Name
    outcome: Outcome = "test_valid"

    def __str__(self) -> str:
        return f"{self.treatment} - {self.control}, {self.outcome}"


class Seeds(Frozen):
    """How many seeds, from which first ones on."""

    n: int = Field(8, ge=1, le=100)
    development: int = Field(0, ge=DEVELOPMENT.start, lt=DEVELOPMENT.stop)
    confirming: int = Field(1000, ge=CONFIRMING.start, lt=CONFIRMING.stop)

    def of(self, kind: Literal["development", "confirming"], n: int) -> list[int]:
        first = self.development if kind == "development" else self.confirming
        return list(range(first, first + n))

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.development + self.n > DEVELOPMENT.stop:
            raise ValueError(f"{self.n} development seeds from {self.development} on go beyond {DEVELOPMENT.stop - 1}")
        return self


Span = Annotated[list[float], Field(min_length=2, max_length=2)]
"""The lowest and the highest value."""


class Search(Frozen):
    """A search for an oracle curriculum."""

    candidates: int = Field(8, ge=2, le=100)
    stages: int = Field(4, ge=1, le=64, description="steps of the curriculum; later stages repeat the last one")
    moving: bool = Field(True, description="whether the data may move over the cells from stage to stage")
    centres: Span | None = Field(None, description="ranks of cells between which bells lie; none = all, from 0")
    widths: Span | None = Field(None, description="between which bells are wide; none = 0.7 to half of the cells")
    levels: dict[str, Span] = Field(
        {},
        description="knob of every cell -> lowest and highest of the values that candidates give it, such as "
        "{wait_ratio: [0.5, 1.0]}",
    )
    longer: float = Field(2.0, ge=1, le=100, description="the oracle's tokens in the end, as a multiple")
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _levels_rise(self) -> Self:
        spans = {f"levels of {name}": span for name, span in self.levels.items()}
        for name, span in {**spans, "centres": self.centres, "widths": self.widths}.items():
            if span is not None and span[0] > span[1]:
                raise ValueError(f"{name} are {span[0]:g} to {span[1]:g}, expected the lower one first")
        if self.widths is not None and self.widths[0] <= 0:
            raise ValueError(f"widths begin at {self.widths[0]:g}, expected more than 0")
        return self


class Plan(Frozen):
    """The file, with its run settings checked."""

    schema_version: Literal[1] = 1
    name: Name
    question: str
    settings: dict[str, Any] = Field(description="run settings of all arms; a relative profile lies beside the plan")
    arms: dict[Name, dict[str, Any]] = Field(min_length=1, description="name -> the run settings that are its own")
    seeds: Seeds = Seeds()
    fewer: dict[Name, int] = Field({}, description="arms with fewer seeds than the others, and how many")
    primary: Contrast | None = None
    secondary: list[Contrast] = Field([], description="contrasts that are corrected for together (Holm)")
    benchmark: bool = Field(False, description="also the out-of-distribution sets, of the start once and each champion")
    samples: int = Field(
        0,
        ge=0,
        le=MOST_SAMPLES,
        description="also the sealed test set with so many answers a task, drawn at the temperature of training",
    )
    equal: bool = Field(True, description="false lets arms have their own token_budget and initial_config, and is told")
    search: Search | None = Field(None, description="what 'python -m graph.study pilot' looks for")

    @model_validator(mode="after")
    def _arms_are_known(self) -> Self:
        contrasts = [*self.secondary, *([self.primary] if self.primary else [])]
        named = [*self.fewer, *(name for one in contrasts for name in (one.treatment, one.control))]
        if unknown := sorted(set(named) - set(self.arms)):
            raise ValueError(f"{unknown[0]!r} is no arm; known are {', '.join(self.arms)}")
        if len(set(map(str, contrasts))) < len(contrasts):
            raise ValueError("a contrast stands in primary and secondary more than once; expected each once")
        return self

    @model_validator(mode="after")
    def _measured(self) -> Self:
        for one in (*self.secondary, *([self.primary] if self.primary else [])):
            if one.outcome == "test_sampled" and self.samples == 0:
                raise ValueError(f"{one.outcome} is not measured: samples is 0, expected 1 to {MOST_SAMPLES}")
            if one.outcome.startswith("benchmark_") and not self.benchmark:
                raise ValueError(f"{one.outcome} is not measured: benchmark is false, expected true")
        return self

    @model_validator(mode="after")
    def _fewer_are_fewer(self) -> Self:
        for arm, n in self.fewer.items():
            if not 1 <= n < self.seeds.n:
                raise ValueError(f"fewer.{arm} is {n}, expected 1 to {self.seeds.n - 1}; seeds.n is {self.seeds.n}")
        return self

    @model_validator(mode="after")
    def _fair(self) -> Self:
        own = OWN if self.equal else tuple(key for key in OWN if key not in ORACLES)
        for arm, settings in self.arms.items():
            for key in settings:
                if key in own:
                    raise ValueError(f"arms.{arm}.{key}: all arms share it; expected it under 'settings'")
        for key, instead in (("seed", "seeds"), ("benchmark", "benchmark")):
            if key in self.settings:
                raise ValueError(f"settings.{key} is the study's to set; expected '{instead}' beside 'settings'")
        return self


class Loaded(Frozen):
    """A plan with what it names: complete run settings by arm, and the hash over all of it."""

    plan: Plan
    path: Path
    arms: dict[str, RunSettings]
    hash: str
    files: tuple[Path, ...]
    """All files that the hash depends on."""


def load_plan(path: Path) -> Loaded:
    """Read a plan, resolve and check all that it names.

    Raises
    ------
    SettingsError
        In one line: the file cannot be read, has an unknown key or a value out of bounds, an arm is not a valid run, or
        its trainer is not pinned by ``budget: profile`` and ``token_budget``.
    """
    data, files = read_plan(path)
    try:
        plan = Plan.model_validate(data)
    except ValidationError as error:
        raise SettingsError(f"{path}: {explain(error, Plan)}") from error
    return resolved(plan, path, files)


def resolved(plan: Plan, path: Path, files: Sequence[Path]) -> Loaded:
    """A plan that was read from ``path``, with the run settings of its arms checked. Raises SettingsError."""
    arms, found = {}, list(files)
    for name, own in plan.arms.items():
        merged = {**plan.settings, **own}
        profile = _beside(path, str(merged.get("profile", "seedling")))
        arms[name] = parse_settings({**merged, "profile": profile}, f"{path}: arms.{name}")
        if arms[name].budget != "profile" or arms[name].token_budget is None:
            raise SettingsError(
                f"{path}: settings have budget {arms[name].budget!r} and token_budget {arms[name].token_budget}; "
                "expected 'budget: profile' and a token_budget, so that all arms train alike and equally much"
            )
    digest = _hash(plan, path, arms)
    found += [file for one in arms.values() for file in _files(one)]
    return Loaded(plan=plan, path=path, arms=arms, hash=digest, files=tuple(dict.fromkeys(found)))


def read_plan(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The data of a plan over that of the plan it extends, and the files read. Raises SettingsError."""
    try:
        data = read_yaml(path)
    except DocumentError as error:
        raise SettingsError(f"the plan is not usable: {error}") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path} holds {type(data).__name__}, expected a mapping such as 'name: main'")
    base = data.pop("extends", None)
    if base is None:
        return data, [path]
    below, files = read_plan(path.parent / str(base))
    settings = {**below.get("settings", {}), **data.get("settings", {})}
    return {**below, **data, "settings": settings}, [path, *files]


def _beside(path: Path, profile: str) -> str:
    """A profile's name as it is, or the absolute place of a file named relative to the plan."""
    return profile if profile in shipped_profiles() else str((path.parent / profile).resolve())


def _hash(plan: Plan, path: Path, arms: Mapping[str, RunSettings]) -> str:
    """Over the plan and the contents of its profiles, of roles of its own and of what its designers read; where the
    files of profiles and roles lie is not part of it."""
    # What is at its default is left out, so that a setting that comes later does not make another plan.
    settings = {
        name: one.model_dump(mode="json", exclude={"profile", "roles"}, exclude_defaults=True)
        for name, one in arms.items()
    }
    own = plan.model_dump(mode="json", exclude={"settings", "arms"}, exclude_defaults=True)
    profiles, contents = {}, {}
    for name, one in arms.items():
        try:
            profiles[name] = load_profile(one.profile).content()
            contents[name] = {
                "roles": None if one.roles is None else roles_hash(load_roles(one.roles)),
                "designer": designer_hash(one.designer),
            }
        except (ProfileError, ValueError) as error:
            raise SettingsError(f"{path}: arms.{name}: {' '.join(str(error).split())}") from error
    whole: dict[str, Any] = {"plan": own, "arms": settings, "profiles": profiles}
    if any(one["roles"] or one["designer"] for one in contents.values()):
        whole["contents"] = contents
    return canonical_hash(whole)


def _files(settings: RunSettings) -> list[Path]:
    """What a person wrote and the run reads, beside the plan."""
    profile = Path(settings.profile)
    roles = [] if settings.roles is None else sorted(Path(settings.roles).rglob("*"))
    read = [path for path in roles if path.suffix in ROLE_SUFFIXES and path.is_file()]
    return [*([profile] if profile.is_absolute() else []), *read, *designer_files(settings.designer)]


def seeds_of(plan: Plan, kind: Literal["development", "confirming"]) -> list[tuple[str, int]]:
    """Every (arm, seed) of the study, seed by seed, so that arms can be compared before all is done."""
    runs = [
        (seed, place, arm)
        for place, arm in enumerate(plan.arms)
        for seed in plan.seeds.of(kind, plan.fewer.get(arm, plan.seeds.n))
    ]
    return [(arm, seed) for seed, _, arm in sorted(runs)]

"""The Environment protocol: the only door through which graph, agents and tools reach an environment.

Everything that crosses it is frozen pydantic data or plain JSON, so a second environment is a new package and not an
edit elsewhere. An *instance* is one task; a *cell* is the group under which results are reported (for the lake: the map
size, written ``"5x5"``); a *knob* is one number of the configuration that a designer may move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

Style = Literal["compact", "full"]
Message = dict[str, str]
Progress = Callable[[int, int], None]
"""Called with (done, total)."""

SPLITS = ("anchor", "test", "validation", "probe", "benchmark", "training")


class EnvsimError(ValueError):
    """Bad input to an environment: says the thing, its value, what was expected and what to do."""


class YieldError(EnvsimError):
    """A configuration cannot be generated at a bearable cost: names the cell and the measured rate."""

    def __init__(self, message: str, *, cell: str, rate: float) -> None:
        super().__init__(message)
        self.cell = cell
        self.rate = rate

    def __reduce__(self) -> tuple[Callable[..., YieldError], tuple[str, str, float]]:
        return _yield_error, (str(self), self.cell, self.rate)


def _yield_error(message: str, cell: str, rate: float) -> YieldError:
    """What another process raised."""
    return YieldError(message, cell=cell, rate=rate)


class Frozen(BaseModel):
    """Base of all data that crosses a room, a process or a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Instance(Frozen):
    """One task. Environments subclass it with what they need."""

    id: str
    hash: str
    split: str


class Fault(Frozen):
    """The first thing that went wrong in an answer."""

    step: int | None = None
    agent: int | None = None
    location: str | None = None


class Verdict(Frozen):
    """What the one verifier says of one answer. ``regret`` is (cost - optimum)/optimum if valid, 1 if not.

    ``outcome``, ``valid``, ``optimal``, ``regret``, ``cost`` and ``fault`` judge the answer where actions are certain.
    The rest says what it is worth in training; an environment whose actions are certain and whose reward is sparse
    leaves it out.
    """

    outcome: str
    valid: bool
    optimal: bool
    regret: float
    cost: int | None = None
    fault: Fault | None = None
    success: float | None = Field(None, gt=0, le=1)
    """Probability that a valid answer succeeds under the instance's noise; None where actions are certain or the answer
    is not valid."""
    success_interval: tuple[float, float] | None = None
    """95 % interval of ``success`` where it was estimated; None where it is exact."""
    progress: float = Field(default_factory=lambda data: float(data.get("valid", False)), ge=0, le=1)
    """How far the answer got before its first fault: 1 exactly if it is valid, 0 for what is no answer."""
    shaping: float = Field(0.0, ge=0, le=1)
    """The instance's weight of ``progress`` in the reward; 0 = sparse."""

    @model_validator(mode="after")
    def _consistent(self) -> Verdict:
        if self.valid != (self.progress == 1):
            raise ValueError(f"progress is {self.progress} of an answer with valid {self.valid}; expected 1 iff valid")
        if self.success is not None and not self.valid:
            raise ValueError(f"success is {self.success} of an answer that is not valid; expected None")
        return self

    @property
    def credit(self) -> float:
        """What the validity reward pays: the probability of success of a valid answer (0 of an invalid one), plus
        ``shaping`` times ``progress``.

        Every valid answer has more credit than every invalid one to the same instance, because its success is above 0
        and its progress above that of any invalid one.
        """
        chance = 0.0 if not self.valid else 1.0 if self.success is None else self.success
        return chance + self.shaping * self.progress


class Replay(Frozen):
    """An answer executed step by step until the first fault or the end.

    ``states`` has one more entry than ``actions`` and ``rewards``; what a state and an action are is the environment's
    own JSON (for the lake: the agents' cells, and one action name an agent).
    """

    states: list[Any]
    actions: list[Any]
    rewards: list[float]
    verdict: Verdict


class Knob(Frozen):
    """One editable number: its value, bounds, and where one step up or down leads."""

    value: float
    low: float
    high: float
    up: float
    down: float


class Measurement(Frozen):
    """What was really generated, by cell: the share of instances and the mean of each measured quantity.

    A quantity that is named as a knob of the environment's ``knob_groups`` is what that knob came to: the share of a
    choice of a mixture, the mean of any other. Knobs that all instances have at their defaults are left out; of a
    mixture the default choice is, which has the rest, and what no instance has.
    """

    n: int
    share: dict[str, float]
    quantities: dict[str, dict[str, float]]
    difficulty: float
    coordination: float
    draws: dict[str, int]
    solvable_share: dict[str, float]


class Generated(Frozen):
    """Certified instances and how they came about."""

    instances: list[Any]
    measurement: Measurement


class Environment(Protocol):
    """Contract of an environment. All methods are pure functions of their arguments."""

    name: str
    config_model: type[BaseModel]
    instance_model: type[Instance]
    outcomes: tuple[str, ...]
    knob_groups: tuple[str, ...]
    """Groups of knobs that a run may open to its designer beside those that are always open; () = there are none."""

    def default_config(self) -> BaseModel: ...

    def cells(self) -> list[str]:
        """All cells, easiest first."""
        ...

    def cell(self, instance: Any) -> str: ...

    def shares(self, config: Any) -> dict[str, float]:
        """The share of each cell that the configuration asks for; sums to 1."""
        ...

    def editing(self, groups: Sequence[str]) -> Environment:
        """The environment with the knobs of these groups open, and of no others, beside those that are always open.

        Raises EnvsimError naming a group that is not in ``knob_groups``, and the nearest that is.
        """
        ...

    def knobs(self, config: Any) -> dict[str, Knob]:
        """Every open knob by path, e.g. ``"5x5.data_ratio"``.

        A path is a cell and a name, or the name of a knob that all cells share. The values of a mixture are weights
        that sum to 1; its paths are ``group.choice``, e.g. ``"agents.3"``, with the group among ``knob_groups``.
        """
        ...

    def with_values(self, config: Any, values: Mapping[str, float]) -> Any:
        """A new configuration with some knobs set. Raises EnvsimError naming path, value and bound."""
        ...

    def generate(
        self,
        config: Any,
        n: int,
        seed: int,
        *,
        split: str = "training",
        effort: float = 1.0,
        progress: Progress | None = None,
    ) -> Generated:
        """n certified instances of one split.

        Raises YieldError where an instance costs more than ``effort`` times what is bearable. Above 1 it serves
        configurations that have been accepted: chance alone should not stop what has run before.
        """
        ...

    def measure(self, instances: Sequence[Any]) -> Measurement: ...

    def split_of(self, instance: Any) -> str: ...

    def difficulty(self, instance: Any) -> float:
        """A solver-side index in [0, 1], independent of any policy."""
        ...

    def frozen_set(self, name: str, *, progress: Progress | None = None) -> list[Any]:
        """anchor, validation, test or benchmark: the same bytes for ever, checked against a committed checksum."""
        ...

    def prompt(self, instance: Any, style: Style) -> list[Message]: ...

    def reference_answer(self, instance: Any, style: Style) -> str:
        """An optimal answer, as text in the given style."""
        ...

    def demonstration(self, instance: Any, style: Style, seed: int, careless: float = 0.0) -> str:
        """An answer drawn by seed: what a supervised warm start shows a policy.

        At ``careless`` 0 it is valid, though not always optimal. ``careless`` is the probability with which the
        demonstrator overlooks each of the things that a task asks to heed.
        """
        ...

    def null_answers(self, instance: Any, style: Style, seed: int) -> dict[str, str]:
        """Answers that need no coordination: empty, all_stay, random_legal, each_alone."""
        ...

    def score(self, instance: Any, answer: str) -> Verdict: ...

    def replay(self, instance: Any, answer: str) -> Replay: ...

    def agents(self, instance: Any) -> int:
        """How many act in it: the number under which benchmark results are grouped."""
        ...

    def film(self, instance: Any, answer: str) -> str:
        """A whole SVG document that shows ``replay(instance, answer)`` to its first fault or its end.

        It must play where scripts do not run and nothing may be fetched, as in a page's ``img``. Any answer gives one.
        """
        ...

"""What all nodes of a run share: settings, environment, profile, roles, files, clock, and the loaded checkpoints."""

from __future__ import annotations

import gc
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.designers import Designer, designer_hash, get_designer
from agents.rolespec import RoleSpec
from envsim.api import Environment, Progress
from graph import layout
from graph.progress import Reporter
from graph.rundir import RunDir
from graph.settings import RunSettings, SettingsError
from graph.state import Pointer, RunState
from graph.timing import Clock
from trainer.evaluate import evaluate, failures_path, report_path, rollouts_path
from trainer.files import read_lines
from trainer.launch.contract import Launcher
from trainer.launch.places import evaluation_plan, launcher
from trainer.launch.sharded import ShardedPolicy
from trainer.policy import OwnedPolicy
from trainer.profile import Profile
from trainer.serving.backends import open_policy
from trainer.serving.settings import VllmBackend, engine
from trainer.spec import EvalReport, ModelRef

KEPT_POLICIES = 2
"""Loaded checkpoints: the current one, and the base or champion that a role may speak with."""


@dataclass
class Work:
    """One run in this process. Only ``run`` and its files outlive it."""

    run: RunDir
    settings: RunSettings
    profile: Profile
    environment: Environment
    roles: Mapping[str, RoleSpec]
    start: ModelRef
    identity: dict[str, Any]
    reporter: Reporter
    clock: Clock
    session: str
    stop: threading.Event
    _launcher: Launcher | None = None
    _policies: dict[str, OwnedPolicy] = field(default_factory=dict)
    _sets: dict[str, list[Any]] = field(default_factory=dict)

    def seed(self, *parts: object) -> int:
        """A seed that depends on the run's seed and on what it is for, in [0, 2^31)."""
        text = ":".join(str(part) for part in (self.settings.seed, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def designer(self) -> Designer:
        """A fresh designer. Raises SettingsError if what it reads is no longer what the run began with."""
        spec = self.settings.designer
        try:
            found, designer = designer_hash(spec), get_designer(spec)
        except ValueError as error:
            raise SettingsError(" ".join(str(error).split())) from error
        began = self.identity.get("designer_sha256")
        if found != began:
            raise SettingsError(
                f"what the designer {designer.name!r} reads was changed while the run was at work (sha256 was {began}, "
                f"is {found}); put it back and resume, or start a new run"
            )
        return designer

    def config(self, name: str) -> Any:
        """A configuration file of the run."""
        return self.environment.config_model.model_validate(self.run.read(name))

    def frozen_set(self, name: str) -> list[Any]:
        """A frozen set, or a part of it with every cell if the profile asks for fewer instances."""
        if name not in self._sets:
            with self.clock.span("instances"), self.reporter.bar(f"{name} set") as update:
                whole = self.environment.frozen_set(name, progress=update)
            self._sets[name] = thinned(whole, getattr(self.profile.evaluation, name, 0), self.environment.cell)
        return self._sets[name]

    def reference(self, pointer: Pointer) -> ModelRef:
        return ModelRef(path=str(self.run.root / pointer["path"]), sha256=pointer["sha256"])

    def release(self) -> None:
        """Give back the memory of every loaded checkpoint; the accelerator is the training process's now."""
        for policy in self._policies.values():
            policy.close()
        self._policies.clear()

    def policy(self, pointer: Pointer) -> OwnedPolicy:
        """What answers for the checkpoint, by the profile's backend; it is made once and makes room for the next one.

        Raises CheckpointError and PolicyError.
        """
        key, backend = pointer["sha256"], self.profile.backend
        kept = backend.servers if isinstance(backend, VllmBackend) else KEPT_POLICIES
        if key not in self._policies:
            with self.clock.span("start-up"):
                while len(self._policies) >= kept:
                    self._policies.pop(next(iter(self._policies))).close()
                gc.collect()
                self._policies[key] = open_policy(
                    backend,
                    self.reference(pointer),
                    device=self.profile.device,
                    threads=self.profile.threads,
                    batch_size=self.profile.evaluation.batch_size,
                    chat_template_kwargs=self.profile.generation.chat_template_kwargs,
                    directory=self.run.path(layout.serving_dir(key)),
                )
        self._policies[key] = self._policies.pop(key)
        return self._policies[key]

    def launcher(self) -> Launcher:
        """Where the run's tasks are carried out. Raises LaunchError if that cannot be reached."""
        if self._launcher is None:
            self._launcher = launcher(self.profile.launch)
        return self._launcher

    def parts(
        self, pointer: Pointer, set_name: str, instances: Sequence[Any], directory: Path, progress: Progress
    ) -> ShardedPolicy:
        """What answers a set by as many tasks as the profile asks for."""
        return ShardedPolicy(
            self.launcher(),
            evaluation_plan(
                self.profile,
                environment=self.settings.environment,
                set_name=set_name,
                model=self.reference(pointer),
            ),
            self.environment,
            instances,
            directory=directory,
            shards=1 if self.profile.launch is None else self.profile.launch.shards,
            progress=progress,
            stop=self.stop,
        )

    def evaluate(self, pointer: Pointer, set_name: str) -> EvalReport:
        """Evaluation of a checkpoint on a frozen set, read if it was done before: greedy, but for an anchor set whose
        answers are to be sampled."""
        samples = self.settings.acceptance.samples if set_name == "anchor" else 0
        generation = self.profile.generation
        directory = self.run.path(layout.eval_dir(pointer["stage"]))
        known = known_report(directory, set_name)
        if known is not None and known.model_sha256 == pointer["sha256"]:
            return known
        instances = self.frozen_set(set_name)
        here = None if self.profile.launch is not None and self.profile.launch.shards > 1 else self.policy(pointer)
        with self.clock.span("evaluation"), self.reporter.bar(f"evaluating on {set_name}") as update:
            policy = here or self.parts(pointer, set_name, instances, directory, update)
            report = evaluate(
                policy,
                self.environment,
                instances,
                set_name=set_name,
                model_sha256=pointer["sha256"],
                style=self.profile.style,
                generation=generation if samples else generation.model_copy(update={"temperature": 0.0}),
                directory=directory,
                samples=samples or 1,
                backend=engine(self.profile.backend),
                keep_failures=keeps_failures(set_name),
                progress=update,
            )
        if isinstance(policy, ShardedPolicy):
            policy.close()
        scores = {"valid": report.macro_valid, "optimal": report.macro_optimal}
        self.reporter.event("evaluated", origin=pointer["stage"], set=set_name, n=report.n, **scores)
        return report


def keeps_failures(set_name: str) -> bool:
    """The validation set is what the roles learn from."""
    return set_name == "validation"


def known_report(directory: Path, set_name: str) -> EvalReport | None:
    """The report of an evaluation whose files are all there and whole; a damaged report is removed."""
    path, rollouts = report_path(directory, set_name), rollouts_path(directory, set_name)
    if not (path.is_file() and rollouts.is_file()):
        return None
    if keeps_failures(set_name) and not failures_path(directory, set_name).is_file():
        return None
    try:
        report = EvalReport.model_validate_json(path.read_bytes())
    except ValidationError:
        path.unlink()
        return None
    # The rows follow one header.
    return report if len(read_lines(rollouts)) == 1 + report.n * report.samples else None


def thinned(instances: Sequence[Any], n: int, cell: Callable[[Any], str]) -> list[Any]:
    """n instances of a set in its order, from every cell in proportion; all of them if n is 0 or not smaller.

    Each cell gives at least one, evenly spaced over its own. Raises ValueError if n is smaller than the cells.
    """
    if n == 0 or n >= len(instances):
        return list(instances)
    places: dict[str, list[int]] = {}
    for index, instance in enumerate(instances):
        places.setdefault(cell(instance), []).append(index)
    if n < len(places):
        raise ValueError(f"{n} instances cannot stand for {len(places)} cells; give 0 for the whole set, or more")
    quota = dict.fromkeys(places, 1)
    for _ in range(n - len(places)):
        # Webster's rule: the seat goes where the rounded share is furthest behind.
        quota[max(places, key=lambda name: len(places[name]) / (2 * quota[name] + 1))] += 1
    chosen = [own[i * len(own) // quota[name]] for name, own in places.items() for i in range(quota[name])]
    return [instances[index] for index in sorted(chosen)]


def start_pointer(work: Work, anchor: float) -> Pointer:
    return Pointer(stage=-1, path=str(Path(work.start.path).absolute()), sha256=work.start.sha256, anchor=anchor)


def named_pointers(work: Work, state: RunState) -> dict[str, Pointer]:
    """The checkpoints that a role's ``model`` may name."""
    return {"inherit": state["current"], "champion": state["champion"], "base": start_pointer(work, 0.0)}

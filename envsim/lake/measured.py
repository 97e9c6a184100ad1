"""What the opt-in knobs really came to in a set of instances, read off the instances themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from envsim.lake.config import MIXTURES
from envsim.lake.instance import LakeInstance
from envsim.lake.knobs import SCALARS


def measured_knobs(instances: Sequence[LakeInstance]) -> dict[str, float]:
    """The share of every choice of a mixture and the mean of the scalar knobs, by path.

    A group that all instances have at its default is left out, so that plain lakes measure as ever. Choices that no
    configuration names, such as those of imported maps, come last.
    """
    return dict(_measured(instances))


def _measured(instances: Sequence[LakeInstance]) -> Iterator[tuple[str, float]]:
    labels: dict[str, list[int | str]] = {
        "agents": [instance.agents for instance in instances],
        "placement": [instance.placement for instance in instances],
        "topology": [instance.topology for instance in instances],
        "goals": [1 if instance.via is None else 2 for instance in instances],
    }
    for mixture, choices in MIXTURES.items():
        counts = Counter(labels[mixture])
        if set(counts) != {choices[0]}:
            others = sorted(set(counts) - set(choices), key=str)
            for choice in (*choices, *others):
                yield f"{mixture}.{choice}", counts[choice] / len(instances)
    for name in SCALARS:
        values = [getattr(instance, name) for instance in instances]
        if any(value != LakeInstance.model_fields[name].default for value in values):
            yield name, sum(values) / len(values)

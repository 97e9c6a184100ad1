"""Instances as a Hugging Face dataset in a directory, and back.

``export`` writes ``data/SPLIT.parquet``, the same rows as ``jsonl/SPLIT.jsonl`` (the project's own instance files), and
last a dataset card ``README.md`` whose every statement is counted from the instances. The directory is what
``datasets.load_dataset(path)`` reads and what ``hf upload`` takes. ``load`` checks the card's checksums and every
instance's hash. The order of instances is kept within a split; splits come in the order of ``envsim.api.SPLITS``.

The library ``datasets`` takes a second to import, so it is imported when a function needs it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from envsim.api import SPLITS, EnvsimError
from envsim.documents import DocumentError, parse_yaml, read_text
from envsim.formats.card import card
from envsim.lake.config import EnvConfig
from envsim.lake.instance import LakeInstance, dump_instances, make_instance
from envsim.lake.rows import check_certificate

if TYPE_CHECKING:
    from datasets import Features

FORMAT = 1
"""Version of the card's own section."""

CARD = "README.md"
_FILE = re.compile(rf"(?:data/(?:{'|'.join(SPLITS)})\.parquet|jsonl/(?:{'|'.join(SPLITS)})\.jsonl)")


def export(
    instances: Sequence[LakeInstance],
    directory: Path,
    *,
    name: str = "MAPF-FrozenLake instances",
    config: EnvConfig | None = None,
    seed: int | None = None,
    licence: str = "mit",
) -> list[Path]:
    """Write instances as a dataset; returns the files, the card last.

    Parameters
    ----------
    instances
        At least one, of any splits, with or without certificates.
    directory
        Made if it is not there; must be empty.
    name
        Title of the card.
    config, seed
        What the instances were generated from, for the card; left out of it if None.
    licence
        Identifier of a licence as the hub spells it.

    Raises
    ------
    EnvsimError
        There are no instances, or the directory holds something.
    """
    from datasets.arrow_dataset import Dataset  # noqa: PLC0415
    from pyarrow import parquet  # type: ignore[import-untyped]  # noqa: PLC0415

    directory = Path(directory)
    if not instances:
        raise EnvsimError("there are no instances to export; expected at least one")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise EnvsimError(f"{directory} is no empty directory; name one that is empty or not there")
    features = _features(instances)
    files: list[str] = []
    bytes_of: dict[str, int] = {}
    for kind in ("data", "jsonl"):
        (directory / kind).mkdir(parents=True, exist_ok=True)
    for split, group in by_split(instances).items():
        table = Dataset.from_list([_row(instance, features) for instance in group], features=features).data.table
        parquet.write_table(table, directory / f"data/{split}.parquet")
        (directory / f"jsonl/{split}.jsonl").write_bytes(dump_instances(group))
        files += [f"data/{split}.parquet", f"jsonl/{split}.jsonl"]
        bytes_of[split] = table.nbytes
    sums = {file: _checksum(directory / file) for file in files}
    front = {
        "license": licence,
        "pretty_name": name,
        "size_categories": [_size_category(len(instances))],
        "tags": ["multi-agent-path-finding", "planning", "frozen-lake"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}.parquet"} for split in bytes_of],
            }
        ],
        "dataset_info": {
            "features": _described(features),
            "splits": [
                {"name": split, "num_bytes": bytes_of[split], "num_examples": len(group)}
                for split, group in by_split(instances).items()
            ],
            "download_size": sum((directory / file).stat().st_size for file in files if file.startswith("data/")),
            "dataset_size": sum(bytes_of.values()),
        },
        "envsim": {
            "format": FORMAT,
            "config_hash": None if config is None else config.canonical_hash(),
            "seed": seed,
            "sha256": sums,
        },
    }
    (directory / CARD).write_text(card(front, instances, list(features), config), encoding="utf-8")
    return [*(directory / file for file in files), directory / CARD]


def load(directory: Path, *, split: str | None = None) -> list[LakeInstance]:
    """The instances of a directory that ``export`` wrote; of one split, or of all.

    Raises
    ------
    EnvsimError
        The card has no section of this module, a file differs from its checksum, a row is no instance, its hash or
        certificate does not fit its layout, or the split is not there.
    DocumentError
        The card cannot be read.
    """
    from pyarrow import ArrowException, parquet  # noqa: PLC0415

    directory = Path(directory)
    sums = _checksums(directory / CARD)
    splits = [name for name in SPLITS if f"data/{name}.parquet" in sums]
    if split is not None and split not in splits:
        raise EnvsimError(f"{directory} has no split {split!r}; it has {', '.join(splits)}")
    found: list[LakeInstance] = []
    for name in [split] if split is not None else splits:
        path = directory / f"data/{name}.parquet"
        if not path.is_file() or _checksum(path) != sums[f"data/{name}.parquet"]:
            raise EnvsimError(f"{path} is missing or not what {directory / CARD} has the sha256 of; export it again")
        try:
            rows = parquet.read_table(path).to_pylist()
        except ArrowException as error:
            raise EnvsimError(f"{path} is no Parquet file: {' '.join(str(error).split())}") from error
        found += from_rows(rows, str(path))
    return found


def check_rows(directory: Path) -> None:
    """Raise EnvsimError if a JSONL file of a dataset is not what its card has the sha256 of.

    A directory that ``export`` did not write has no such card, and is taken as it is.
    """
    card_path = directory / CARD
    try:
        sums = _checksums(card_path) if card_path.is_file() else {}
    except (EnvsimError, DocumentError):
        return
    for file, value in sums.items():
        path = directory / file
        if path.suffix == ".jsonl" and (not path.is_file() or _checksum(path) != value):
            raise EnvsimError(
                f"{path} is missing or not what {card_path} has the sha256 of; export it again, or give that file by "
                "its own name"
            )


def from_rows(rows: Iterable[Mapping[str, Any]], where: str = "rows") -> list[LakeInstance]:
    """Instances from rows of a dataset, as iterating a ``datasets.Dataset`` gives them.

    Raises
    ------
    EnvsimError
        A row is no instance, or its hash or certificate does not fit its layout; says ``where`` and which
        row, counted from 0.
    """
    found = []
    for index, row in enumerate(rows):
        try:
            instance = LakeInstance.model_validate({key: value for key, value in row.items() if value is not None})
        except ValidationError as error:
            problem = error.errors()[0]
            raise EnvsimError(
                f"{where}: row {index} is no instance: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            ) from error
        expected = make_instance(instance.rows, instance.starts, instance.goals, via=instance.via)
        if (instance.id, instance.hash, instance.split) != (expected.id, expected.hash, expected.split):
            raise EnvsimError(
                f"{where}: row {index} has id {instance.id}, hash {instance.hash[:12]} and split {instance.split}; its "
                f"layout has {expected.id}, {expected.hash[:12]} and {expected.split}"
            )
        if instance.certificate is not None:
            check_certificate(instance, instance.certificate, f"{where}: row {index}")
        found.append(instance)
    return found


def by_split(instances: Iterable[LakeInstance]) -> dict[str, list[LakeInstance]]:
    """Instances of each split that has any, in the order of ``SPLITS``."""
    found: dict[str, list[LakeInstance]] = {split: [] for split in SPLITS}
    for instance in instances:
        if instance.split not in found:
            raise EnvsimError(f"instance {instance.id} has split {instance.split!r}; expected one of {SPLITS}")
        found[instance.split].append(instance)
    return {split: group for split, group in found.items() if group}


def _json(instance: LakeInstance) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(instance.model_dump_json())
    return data


def _row(instance: LakeInstance, features: Features) -> dict[str, Any]:
    return dict.fromkeys(features) | _json(instance)


def _features(instances: Iterable[LakeInstance]) -> Features:
    """The type of every column that an instance fills, in the order of the model."""
    from datasets.features import Features, List, Value  # noqa: PLC0415

    cells, text, number = List(List(Value("int32"))), Value("string"), Value("int32")
    certificate = {
        "solvable": Value("bool"),
        "distances": List(number),
        "makespan": number,
        "sum_of_costs": number,
        "sum_of_costs_at_makespan": number,
        "needs_wait_soc": Value("bool"),
        "needs_wait_makespan": Value("bool"),
        "reference_has_wait": Value("bool"),
        "paths_collide": Value("bool"),
        "coordination_cost": number,
        "plan": List(text),
    }
    columns: dict[str, Any] = {
        "id": text,
        "hash": text,
        "split": text,
        "size": number,
        "agents": number,
        "name": text,
        "rows": List(text),
        "starts": cells,
        "goals": cells,
        "via": cells,
        "topology": text,
        "placement": text,
        "success_rate": Value("float64"),
        "shaping": Value("float64"),
        "certificate": certificate,
    }
    filled = {key for instance in instances for key in _json(instance)}
    named = {key: columns[key] for key in LakeInstance.model_fields if key in filled}
    return Features(named)  # type: ignore[no-untyped-call, arg-type]


def _described(features: Features) -> list[dict[str, Any]]:
    """Features as a card's front matter writes them."""
    from datasets.info import DatasetInfo, DatasetInfosDict  # noqa: PLC0415
    from huggingface_hub import DatasetCardData  # noqa: PLC0415

    data = DatasetCardData()
    DatasetInfosDict({"default": DatasetInfo(features=features)}).to_dataset_card_data(data)
    described: list[dict[str, Any]] = data.to_dict()["dataset_info"]["features"]  # type: ignore[no-untyped-call]
    return described


def _checksums(path: Path) -> dict[str, str]:
    """sha256 of every file, from the card's front matter."""
    parts = re.split(r"^---\s*$", read_text(path), maxsplit=2, flags=re.MULTILINE)
    front = parse_yaml(parts[1], str(path)) if len(parts) == 3 and not parts[0].strip() else None
    section = front.get("envsim") if isinstance(front, dict) else None
    if not isinstance(section, dict) or section.get("format") != FORMAT:
        raise EnvsimError(f"{path} has no section 'envsim' of format {FORMAT} in its front matter; export it again")
    sums = section.get("sha256")
    if not isinstance(sums, dict) or not all(_FILE.fullmatch(str(file)) for file in sums):
        raise EnvsimError(
            f"{path}: envsim.sha256 is {str(sums)[:80]!r}; expected data/SPLIT.parquet and jsonl/SPLIT.jsonl"
        )
    return {str(file): str(value) for file, value in sums.items()}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size_category(n: int) -> str:
    """As the hub spells sizes."""
    bounds = [(1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")]
    return next((text for bound, text in bounds if n < bound), "1M<n<10M")

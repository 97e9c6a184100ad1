"""``generate``: certified instances of a configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from envsim.api import SPLITS, EnvsimError, Measurement
from envsim.commands import Commands, described, progress
from envsim.commands.writing import FORMATS, FORMATS_HELP, check, out_path, write
from envsim.documents import read_yaml
from envsim.lake.config import EnvConfig, parse_config
from envsim.lake.environment import Lake

DESCRIPTION = """Generate certified instances. Prints what was made by map size: share of the instances, layouts drawn,
share of the drawn ones that are solvable, and the means of what was measured. Each instance carries its certificate:
optimal makespan and sum of costs, whether it needs a wait, and an optimal plan, all proved by exact search.

The configuration says, for every map size 3 to 10, its share of the data (data_ratio), its share of holes (hole_ratio,
0 to 0.5) and the share of instances that need a wait (wait_ratio), and for all of them the weights of the number of
agents; 'python -m envsim schema EnvConfig' has every field. The same configuration and seed give the same bytes."""

MAX_N = 10_000_000

EXAMPLE = """python -m envsim generate --n 1000 --seed 7 --out train.jsonl
python -m envsim generate --config hard.yaml --n 500 --format datasets --out hard/"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "generate", DESCRIPTION, EXAMPLE, run)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="EnvConfig as YAML or JSON (default: the default configuration)"
    )
    parser.add_argument("--n", type=int, default=100, metavar="N", help="how many instances (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of all that is random (default: 0)")
    parser.add_argument(
        "--split",
        choices=SPLITS,
        default="training",
        help="which split the instances belong to; splits never share an instance up to symmetry (default: training)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="P",
        help="processes over which map sizes and other parts are spread; the bytes are the same for any (default: 1)",
    )
    parser.add_argument(
        "--out",
        type=out_path,
        metavar="PATH",
        help="file or directory to write; not there yet (default: only print the table)",
    )
    parser.add_argument("--format", choices=FORMATS, default="jsonl", help=FORMATS_HELP)


def run(options: argparse.Namespace) -> None:
    """Generate, write and print the table."""
    if options.n > MAX_N:
        raise EnvsimError(f"--n is {options.n}, expected at most {MAX_N}")
    if options.out is None and options.format != "jsonl":
        raise EnvsimError(f"--format {options.format} needs --out, the directory to write")
    lake = Lake()
    config = lake.default_config() if options.config is None else _read(options.config)
    if options.out is not None:
        check(options.out, options.format, config)
    made = lake.generate(
        config, options.n, options.seed, split=options.split, progress=progress, processes=options.processes
    )
    if options.out is not None:
        write(made.instances, options.out, options.format, config=config, seed=options.seed)
    print(table(made.measurement))


def _read(path: Path) -> EnvConfig:
    """Raises EnvsimError or DocumentError that begins with the file."""
    data = read_yaml(path)
    if data is None:
        raise EnvsimError(f"{path} is empty; expected a configuration, or {{}} for the default one")
    try:
        return parse_config(data)
    except EnvsimError as error:
        raise EnvsimError(f"{path}: {error}") from error


def table(measured: Measurement) -> str:
    """A measurement as text, a line a cell."""
    names = list(next(iter(measured.quantities.values())))
    lines = [f"{'':<8}{'share':>8}{'draws':>8}{'solvable':>10}" + "".join(f"{name:>19}" for name in names)]
    for cell, values in measured.quantities.items():
        figures = "".join(f"{values[name]:>19.3f}" for name in names)
        lines.append(
            f"{cell:<8}{measured.share[cell]:>8.3f}{measured.draws[cell]:>8}{measured.solvable_share[cell]:>10.3f}"
            + figures
        )
    lines.append(f"difficulty {measured.difficulty:.3f}, coordination {measured.coordination:.3f}")
    return "\n".join(lines)

"""``python -m trainer.launch.ranks --preset NAME --processes N MODULE ARGUMENTS``: a stage's processes run a module.

GPUs go through ``accelerate launch`` with the preset's configuration; processes on a CPU through the same elastic agent
beneath it, torchrun, because ``accelerate launch`` starts those by MPI alone. The death of one process ends the others,
and this one ends as the first that failed did: with its exit code, or by its signal. At SIGTERM they are told
to drain, and end by themselves; how long they may take is for whoever sent it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil  # type: ignore[import-untyped]
from accelerate.commands.launch import launch_command, launch_command_parser  # type: ignore[import-untyped]
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from trainer.launch.leash import end_as
from trainer.launch.presets import presets
from trainer.launch.serving import serving, split_gpus
from trainer.processes import DRAIN_RANKS
from trainer.serving.health import ServingError
from trainer.spec import StageSpec


def arguments_for(preset: str, processes: int, module: str, arguments: Sequence[str]) -> list[str]:
    """The line that ``torchrun`` (presets without an accelerate configuration) or ``accelerate launch`` is given."""
    configuration = presets()[preset].accelerate
    if configuration is None:
        return ["--standalone", "--nproc-per-node", str(processes), "--module", module, *arguments]
    path = Path(str(files("trl") / "accelerate_configs" / f"{configuration}.yaml"))
    port = ["--main_process_port", "0"] if processes > 1 else []
    return ["--config_file", str(path), "--num_processes", str(processes), *port, "--module", module, *arguments]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m trainer.launch.ranks", description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", required=True, choices=sorted(presets()))
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--serve", type=Path, metavar="SPEC", help="a StageSpec whose rollouts need a server")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    # As -P does for this process: nothing is imported from the working directory by luck.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        if options.serve is None:
            carry_out(options.preset, options.processes, options.module, options.arguments)
        else:
            carry_out_served(options.serve, options.preset, options.processes, options.module, options.arguments)
    except ServingError as error:
        print(error, flush=True)
        end_as(1)
    except ChildFailedError as error:
        print(error, flush=True)
        end_as(error.get_first_failure()[1].exitcode)
    except SignalException as error:
        end_as(-error.sigval)
    except subprocess.CalledProcessError as error:
        end_as(error.returncode)
    raise SystemExit(0)


def carry_out_served(spec: Path, preset: str, processes: int, module: str, arguments: Sequence[str]) -> None:
    """The same beside a vLLM server, whose URL the module gets as ``--server``."""
    import torch  # noqa: PLC0415  to count GPUs, which no other preset needs

    stage = StageSpec.model_validate_json(spec.read_text(encoding="utf-8"))
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]
    served = stage.rollouts.gpus if stage.rollouts.kind == "vllm_server" else 0
    train_on, serve_on = split_gpus(visible, processes, served)
    with serving(stage, serve_on) as url:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(train_on)
        carry_out(preset, processes, module, [*arguments, "--server", url])


def carry_out(preset: str, processes: int, module: str, arguments: Sequence[str]) -> None:
    """Run the module in all processes to its end. Raises what the agent raises for the first that failed."""
    _hand_sigterm_on()
    line = arguments_for(preset, processes, module, arguments)
    if presets()[preset].accelerate is None:
        os.environ["ACCELERATE_USE_CPU"] = "true"
        # Left to itself accelerate numbers the CPU by rank, and no optimiser state loads onto a "cpu:1".
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        torchrun.run(torchrun.parse_args(line))  # type: ignore[no-untyped-call]
    else:
        launch_command(launch_command_parser().parse_args(line))


def _hand_sigterm_on() -> None:
    """At SIGTERM whatever is started after this is told to drain, and this process waits for its end."""
    this = psutil.Process()
    # A server that is there already must serve until training has been left.
    before = set(this.children())

    def hand_on(number: int, _: FrameType | None) -> None:
        started = [child for child in this.children() if child not in before]
        for child in started:
            # A process of this one's own group is told by whoever tells the group.
            if os.getpgid(child.pid) != os.getpgrp():
                child.send_signal(DRAIN_RANKS)
        if not started:
            end_as(-number)

    # The agent's own handler kills its processes.
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGINT,SIGHUP,SIGQUIT"
    signal.signal(signal.SIGTERM, hand_on)


if __name__ == "__main__":
    main()

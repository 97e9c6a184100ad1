"""`python -m trainer.serving start|check|agree|bench`: serve a checkpoint by vLLM, and see that it is served well.

Exit codes: 0 done or stopped by a signal, 1 a server failed or does not do what it must, 2 bad input.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from envsim.api import EnvsimError, Message
from envsim.documents import DocumentError
from envsim.registry import get
from trainer.checkpoint import CheckpointError, resolve
from trainer.frozen import explain
from trainer.policy import PolicyError
from trainer.profile import Profile, ProfileError, load_profile
from trainer.serving.agreement import Agreement, agreement
from trainer.serving.bench import Speed, measure
from trainer.serving.client import OpenAIPolicy
from trainer.serving.health import ServingError, ServingInputError
from trainer.serving.server import SERVED_NAME, Server, interpreter, serving
from trainer.serving.settings import Constraint, UrlBackend, VllmBackend, check_url
from trainer.spec import ModelRef

LEAST_SHARE = 0.99
"""Of the choices that a server must make as transformers makes them, in float32."""
LARGEST_GAP = 0.01
"""Nats between two tokens of which either may be chosen, in float32."""
_BAD_INPUT = (CheckpointError, DocumentError, EnvsimError, ProfileError, ServingInputError, ValidationError, OSError)
_SHOWN = 20
_LONGEST_CHECK = 86_400.0


class Stop(Exception):
    """SIGTERM or Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except ValidationError as error:
        print(explain(error), file=sys.stderr)
        return 2
    except _BAD_INPUT as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except (PolicyError, ServingError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.serving", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    start = commands.add_parser("start", help="serve a checkpoint until Ctrl-C or SIGTERM")
    _common(start)
    start.add_argument("--directory", type=Path, required=True, help="for the server's log and its process's record")
    start.add_argument(
        "arguments", nargs="*", metavar="-- ARGUMENT", help="further arguments of vLLM's server, after --"
    )
    start.set_defaults(run=_start)
    check = commands.add_parser("check", help="the canary: does the server at a URL hold answers to a JSON Schema?")
    check.add_argument("--url", required=True, help="such as http://127.0.0.1:8000/v1")
    check.add_argument("--served-model", required=True, metavar="NAME", help="the model's name there")
    check.add_argument("--seconds", type=float, default=30.0, help="that the answer may take (default: 30)")
    check.set_defaults(run=_check)
    agree = commands.add_parser("agree", help="compare a server's greedy tokens with those of transformers")
    _common(agree)
    _task_arguments(agree, 64)
    agree.set_defaults(run=_agree)
    bench = commands.add_parser("bench", help="tokens and answers a second: generate, lean decoder, vLLM")
    _common(bench)
    _task_arguments(bench, 128)
    bench.add_argument("--temperature", type=float, default=0.0, help="0 = greedy: all give the same answers")
    bench.add_argument("--repeats", type=int, default=3, help="the medians of so many runs are shown")
    bench.set_defaults(run=_bench)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", default="seedling", help="a shipped profile or a YAML file: model, device, settings"
    )
    parser.add_argument("--model", help="seedling, smollm2, a directory or a hub id; default: the profile's")
    parser.add_argument(
        "--vllm", metavar="PYTHON", help="the Python that has vLLM; default: the profile's, else this one"
    )


def _task_arguments(parser: argparse.ArgumentParser, n: int) -> None:
    parser.add_argument("--environment", default="lake")
    parser.add_argument("--set", default="validation", help="anchor, validation, test or benchmark")
    parser.add_argument("--n", type=int, default=n, help=f"tasks, evenly spaced over the set (default {n})")


def _given(options: argparse.Namespace) -> tuple[Profile, ModelRef, VllmBackend]:
    profile = load_profile(options.profile)
    backend = profile.backend if isinstance(profile.backend, VllmBackend) else VllmBackend()
    if options.vllm is not None:
        backend = backend.model_copy(update={"python": options.vllm})
    return profile, resolve(options.model or profile.model), backend


def _prompts(options: argparse.Namespace, profile: Profile) -> list[list[Message]]:
    environment = get(options.environment)
    instances = environment.frozen_set(options.set)
    if not 1 <= options.n <= len(instances):
        raise EnvsimError(f"--n is {options.n}, expected 1 to {len(instances)}, the tasks of {options.set}")
    chosen = [instances[place * len(instances) // options.n] for place in range(options.n)]
    return [environment.prompt(instance, profile.style) for instance in chosen]


def _start(options: argparse.Namespace) -> int:
    profile, ref, backend = _given(options)
    if isinstance(profile.backend, UrlBackend):
        raise ServingInputError(
            f"profile {profile.name!r} is answered by {profile.backend.base_url}, which is started elsewhere; "
            "expected one whose backend is vllm or transformers"
        )
    backend = VllmBackend.model_validate(
        {**backend.model_dump(), "arguments": (*backend.arguments, *options.arguments)}
    )
    began = time.monotonic()
    with _stoppable() as wait:
        print(f"starting; the log is {options.directory / 'server.log'}", flush=True)
        with serving(
            Path(ref.path), backend, options.directory, device=profile.device, threads=profile.threads
        ) as server:
            _canary(server)
            print(
                f"{ref.path} is served at {server.base_url} as {SERVED_NAME!r} by process {server.pid}, after "
                f"{time.monotonic() - began:.0f} s; the canary passed; stop it with Ctrl-C",
                flush=True,
            )
            wait(server)
    return 0


@contextmanager
def _stoppable() -> Iterator[Callable[[Server], None]]:
    """Signals end the block in order, and with exit code 0."""

    def stop(*_: object) -> None:
        raise Stop

    before = {sign: signal.signal(sign, stop) for sign in (signal.SIGTERM, signal.SIGINT)}

    def wait(server: Server) -> None:
        while (fate := server.fate()) is None:
            time.sleep(0.5)
        raise ServingError(fate)

    try:
        yield wait
    except Stop:
        print("stopped", flush=True)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _canary(server: Server) -> None:
    for constraint in get_args(Constraint):
        OpenAIPolicy(server.base_url, SERVED_NAME, constraint=constraint, fate=server.fate).check()


def _check(options: argparse.Namespace) -> int:
    try:
        check_url("--url", options.url)
    except ValueError as error:
        raise ServingInputError(str(error)) from error
    if not 0 < options.seconds <= _LONGEST_CHECK:
        raise ServingInputError(f"--seconds is {options.seconds:g}, expected more than 0, up to {_LONGEST_CHECK:g}")
    OpenAIPolicy(options.url, options.served_model, timeout=options.seconds, limit="--seconds").check()
    print(f"{options.url} holds {options.served_model!r} to a JSON Schema")
    return 0


def _agree(options: argparse.Namespace) -> int:
    profile, ref, backend = _given(options)
    prompts = _prompts(options, profile)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(Path(ref.path), backend, Path(scratch), device=profile.device, threads=profile.threads) as server,
    ):
        found = agreement(
            ref,
            server.base_url,
            SERVED_NAME,
            prompts,
            max_new_tokens=profile.generation.max_new_tokens,
            chat_template_kwargs=profile.generation.chat_template_kwargs,
            device=profile.device,
        )
    _print_agreement(found)
    good = found.same_prompts == found.prompts and found.share >= LEAST_SHARE and found.largest_gap <= LARGEST_GAP
    return 0 if good else 1


def _print_agreement(found: Agreement) -> None:
    console = Console()
    console.print(
        f"{found.same_prompts} of {found.prompts} prompts were rendered to the same tokens; of {found.compared} "
        f"choices after the same tokens {found.share:.4%} are the same; {len(found.divergences)} answers diverge"
    )
    if not found.divergences:
        return
    table = Table("prompt", "after tokens", "transformers", "vLLM", "gap here, nats", "gap there, nats")
    for one in sorted(found.divergences, key=lambda divergence: -divergence.local_gap)[:_SHOWN]:
        there = "-" if one.served_gap is None else f"{one.served_gap:.6f}"
        table.add_row(*map(str, (one.prompt, one.position, one.local, one.served)), f"{one.local_gap:.6f}", there)
    console.print(table)


def _bench(options: argparse.Namespace) -> int:
    profile, ref, backend = _given(options)
    prompts = _prompts(options, profile)
    if options.repeats < 1 or not 0 <= options.temperature <= 100:
        raise EnvsimError(
            f"--repeats is {options.repeats} and --temperature {options.temperature}, expected at least 1, and 0 to 100"
        )
    # Before the other engines are timed, which takes minutes.
    interpreter(backend)
    with tempfile.TemporaryDirectory() as scratch:
        speeds = measure(
            profile,
            ref,
            backend,
            prompts,
            temperature=options.temperature,
            repeats=options.repeats,
            directory=Path(scratch),
        )
    _print_speeds(speeds, f"{ref.path}, {profile.device}, {profile.threads} threads, {len(prompts)} prompts")
    return 0


def _print_speeds(speeds: Sequence[Speed], title: str) -> None:
    table = Table("engine", "tokens/s", "rollouts/s", "x generate", "tokens", "seconds", "spread", "start-up, s")
    for one in speeds:
        times = one.rollouts_per_second / speeds[0].rollouts_per_second
        table.add_row(
            one.engine,
            f"{one.tokens_per_second:.0f}",
            f"{one.rollouts_per_second:.2f}",
            f"{times:.2f}",
            str(one.tokens),
            f"{one.seconds:.2f}",
            f"{one.spread:.2f}",
            f"{one.start_up:.1f}",
        )
    console = Console()
    console.print(title)
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())

"""A whole run as a task of a real Ray cluster, of which the node that carries it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import parity
import pytest
from loops import LOOSE, settings_text
from two_nodes import TwoNodes, two_nodes

from graph.exits import Exit
from graph.remote import carry, main, to_go_on
from graph.rundir import RunDir
from trainer.launch.contract import LaunchError, Resources, Task

LOST = -9


class Lines:
    """A place whose tasks end at once with the codes that it was given, and do before what it was told."""

    name = "lines"
    retries = 2
    grace_seconds = 0.0

    def __init__(self, *courses: tuple[int, Callable[[], object]]) -> None:
        self.said: list[tuple[str, ...]] = []
        self._courses = iter(courses)

    def start(self, task: Task) -> Ended:
        self.said.append(task.arguments[task.arguments.index("--run-dir") + 2 :])
        code, does = next(self._courses)
        does()
        return Ended(code)


class Ended:
    pid = None

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code

    def stop(self) -> None:
        """It has ended."""


def nothing() -> None:
    """Lost before it did anything."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "run"


def carried(root: Path, arguments: list[str], *courses: tuple[int, Callable[[], object]]) -> list[tuple[str, ...]]:
    """What was said to each task of a run that is done in the end."""
    place = Lines(*courses, (Exit.DONE, nothing))
    assert carry(place, root, arguments, Resources()) == Exit.DONE
    return place.said


def begins(root: Path) -> Callable[[], object]:
    def write() -> None:
        root.mkdir()
        (root / "run.yaml").touch()

    return write


def answers(root: Path) -> Callable[[], object]:
    def write() -> None:
        RunDir(root).write("stages/001/proposals/0/approval.json", {"approved": True})

    return write


FORK = ["--fork-from", "old", "--at-stage", "1", "--config", "changes.yaml"]


@pytest.mark.parametrize("arguments", [FORK, ["--config", "run.yaml", "--stages", "3"]])
def test_what_has_begun_is_resumed_and_what_has_not_is_said_again(root: Path, arguments: list[str]) -> None:
    """Of a fork the settings file is only what it changes: said again, it would be another configuration."""
    said = carried(root, arguments, (LOST, nothing), (LOST, begins(root)))
    assert said == [tuple(arguments), tuple(arguments), ("--resume",)]


@pytest.mark.parametrize("word", [["--approve"], ["--approve", "mine.json"], ["--approve=no"], ["--reject"]])
def test_a_word_is_said_until_it_is_taken_and_no_longer(root: Path, word: list[str]) -> None:
    begins(root)()
    RunDir(root).write("stages/001/proposals/1/approval.json", {"approved": False})
    given = ["--resume", *word, "--trace", "outline"]
    said = carried(root, given, (LOST, nothing), (LOST, answers(root)))
    assert said == [tuple(given), tuple(given), ("--resume", "--trace", "outline")]


def test_a_run_that_is_lost_too_often_is_told(root: Path) -> None:
    place = Lines(*[(LOST, nothing)] * 3)
    with pytest.raises(LaunchError):
        carry(place, root, ["--stages", "1"], Resources())
    assert len(place.said) == 3


def test_an_abbreviated_flag_is_that_flag() -> None:
    assert to_go_on(["--res", "--app", "yes"], answered=True) == ["--resume"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes(Path(parity.__file__).parent) as nodes:
        yield nodes


def loses(cluster: TwoNodes, run_dir: Path, attempt: str) -> threading.Thread:
    """A power cut of the node that carries a run, as soon as a stage trains."""

    def lose() -> None:
        while not list(run_dir.glob(attempt)):
            time.sleep(0.1)
        cluster.lose_the_busy_one()

    power_cut = threading.Thread(target=lose, daemon=True)
    power_cut.start()
    return power_cut


@pytest.mark.loop
def test_a_run_goes_on_elsewhere_when_its_node_is_lost(
    cluster: TwoNodes, root: Path, profile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Begun with a settings file, and lost; then with a person's word, and lost again once that is taken."""
    config = root.with_name("settings.yaml")
    config.write_text(settings_text(profile, designer="fixed", approval="always", gates=LOOSE))
    given = ["--ray", cluster.cluster.address, "--run-dir", str(root), "--"]
    power_cut = loses(cluster, root, "stages/000/attempt-1")
    code = main([*given, "--config", str(config)])
    assert code == Exit.WAITING, capfd.readouterr().out[-3000:]
    power_cut.join()
    log = root.with_name("run.remote.log")
    assert log.read_text().count("was lost") == 1
    cluster.add_node()
    power_cut = loses(cluster, root, "stages/001/attempt-1")
    code = main([*given, "--resume", "--approve"])
    assert code == Exit.DONE, capfd.readouterr().out[-3000:]
    power_cut.join()
    assert log.read_text().count("was lost") == 2
    assert RunDir(root).read("stages/001/plan.json")["source"] == "fixed"
    assert (root / "report" / "index.html").exists()
    # What a bad line says comes back as it would from the run itself.
    assert main([*given[:3], str(root.with_name("x")), "--", "--designer", "slef"]) == Exit.BAD_INPUT
    assert "did you mean" in capfd.readouterr().out

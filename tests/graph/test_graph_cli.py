"""The command line: exit codes, one clear line for bad input, and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from role_sets import with_historian, write_role

import trainer
from agents.roles import load_roles
from agents.rolespec import PACKAGE
from agents.schemas import Critique
from graph import run, session
from graph.build import build, recursion_limit
from graph.exits import Exit
from graph.progress import Stopped
from graph.review import reviewed
from trainer.stage import StageInputError

TOPOLOGY = Path(__file__).parent / "topology.mmd"
PROFILES = Path(trainer.__file__).parent / "profiles"


def settings_file(folder: Path, **data: object) -> Path:
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def base(profile: Path) -> dict[str, object]:
    return {"environment": "parity:Parity", "profile": str(profile)}


@pytest.mark.parametrize(
    "case",
    [
        ({"stagess": 1}, [], "did you mean 'stages'"),
        ({"stages": -1}, [], "stages = -1"),
        ({"designer": "selfish"}, [], "did you mean 'self'"),
        ({"environment": "laek"}, [], "did you mean 'lake'"),
        ({"profile": "seedlin"}, [], "did you mean 'seedling'"),
        ({"roles": "/nowhere"}, [], "/nowhere"),
        ({"initial_config": {"short": {"data_ratio": 7}}}, [], "initial_config.short.data_ratio = 7"),
        ({"initial_config": {"shor": {}}}, [], "did you mean 'short'"),
        ({"gates": {"g2": {"min_efective": 1}}}, [], "did you mean 'min_effective'"),
        ({}, ["--stages", "many"], "invalid int value: 'many'"),
        ({}, ["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        ({}, ["--resume"], "--resume needs --run-dir"),
        ({}, ["--approve"], "add --resume"),
        ({}, ["--resume", "--run-dir", "nowhere", "--approve", "--reject"], "exclude each other"),
        ({}, ["--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    base: dict[str, object],
    case: tuple[dict[str, object], list[str], str],
) -> None:
    changes, flags, words = case
    monkeypatch.chdir(tmp_path)
    config = settings_file(tmp_path, **(base | changes))
    code = run.main(["--config", str(config), *flags])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == Exit.BAD_INPUT
    assert len(lines) == 1
    assert words in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]


def test_a_missing_checkpoint_is_named(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    broken = yaml.safe_load(profile.read_text()) | {"model": str(tmp_path / "gone")}
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(broken))
    config = settings_file(tmp_path, **(base | {"profile": str(path)}))
    assert run.main(["--config", str(config), "--run-dir", str(tmp_path / "run")]) == Exit.BAD_INPUT
    assert str(tmp_path / "gone") in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_set_too_small_for_its_cells_is_refused(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    small = yaml.safe_load(profile.read_text()) | {"evaluation": {"validation": 1}}
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(small))
    config = settings_file(tmp_path, **(base | {"profile": str(path)}))
    assert run.main(["--config", str(config), "--run-dir", str(tmp_path / "run")]) == Exit.BAD_INPUT
    assert "evaluation.validation = 1, expected at least 2" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b"\xff", "no UTF-8"), (b" \n", "is empty")])
def test_a_key_that_cannot_be_read_is_refused_before_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    base: dict[str, object],
    content: bytes | None,
    words: str,
) -> None:
    roles, key = tmp_path / "roles", tmp_path / "key"
    shutil.copytree(PACKAGE / "roles", roles)
    file = roles / "trainer.yaml"
    external = {"base_url": "http://localhost:1/v1", "name": "m", "api_key_file": str(key)}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"model": external}))
    if content is not None:
        key.write_bytes(content)
    config = settings_file(tmp_path, **base, roles=str(roles))
    assert run.main(["--config", str(config), "--dry-run"]) == Exit.BAD_INPUT
    error = capsys.readouterr().err
    assert "role trainer: model.api_key_file: " in error
    assert words in error


def test_an_initial_configuration_with_no_yield_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    config = settings_file(tmp_path, **base, initial_config={"short": {"noise_ratio": 1.0}})
    assert run.main(["--config", str(config), "--run-dir", str(tmp_path / "run")]) == Exit.BAD_INPUT
    assert "short: 0 % of the draws are that noisy" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


async def stopped_at_once(*_: object) -> None:
    raise Stopped


def test_another_seed_on_a_run_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    config = settings_file(tmp_path, **base)
    root = str(tmp_path / "run")
    monkeypatch.setattr("graph.session.drive", stopped_at_once)
    assert run.main(["--config", str(config), "--run-dir", root]) == Exit.DRAINED
    assert run.main(["--config", str(config), "--run-dir", root]) == Exit.BAD_INPUT
    assert "--resume" in capsys.readouterr().err
    assert run.main(["--run-dir", root, "--resume", "--seed", "5"]) == Exit.BAD_INPUT
    assert "settings.seed (was 0, now 5)" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings_file(tmp_path, **base)
    assert run.main(["--config", str(config), "--dry-run"]) == Exit.DONE
    assert "anchor 24" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]


def test_a_dry_run_counts_what_acceptance_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    counts = []
    for samples in (0, 3):
        settings = settings_file(tmp_path, **{**base, "stages": 2, "acceptance": {"samples": samples}})
        assert run.main(["--config", str(settings), "--dry-run"]) == Exit.DONE
        [line] = [line for line in capsys.readouterr().out.splitlines() if "answers: evaluation" in line]
        counts.append(int("".join(filter(str.isdigit, line))))
    # Start and three stages, each with two more answers to each of 24 anchor tasks.
    assert counts[1] - counts[0] == 4 * 24 * 2


def test_a_dry_run_tells_the_roles_in_their_order_and_what_they_call_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    calls = [{"tool": "read_history"}, {"tool": "list_failures", "args": {"limit": 2}}]
    folder = with_historian(tmp_path / "roles", tools_before=calls)
    (folder / "prompts" / "curriculum_historian.j2").write_text("{{ evidence.stage }} {{ tools.read_history }}")
    judge = {"base_url": "http://localhost:8009/v1", "name": "judge"}
    write_role(folder, "safety_critic", model=judge, approval="on_doubt")
    changes = {"roles": str(folder), "budget": "profile", "designer": "fixed"}
    assert run.main(["--config", str(settings_file(tmp_path, **base, **changes)), "--dry-run"]) == Exit.DONE
    told = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    told = [line.removeprefix("a designed stage, in order").strip("│ ") for line in told]
    order = [
        "(evidence)",
        "curriculum_historian; first calls read_history, list_failures",
        "failure_analyst",
        "config_designer; the designer 'fixed' in its place",
        "(gates)",
        "safety_critic; judge at http://localhost:8009/v1; a person approves: on_doubt",
        "(approval)",
        "(settle)",
        "trainer; not asked, the budget is the profile's",
        "(dataset)",
    ]
    assert [line for line in told if line in order] == order


@pytest.mark.parametrize("shipped", ["qwen3-4b", "qwen3-4b-8gpu"])
def test_the_plan_of_a_gpu_profile_is_told_before_what_this_machine_lacks(
    shipped: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    random_model: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    text = (PROFILES / f"{shipped}.yaml").read_text()
    Path("mine.yaml").write_text(text.replace("Qwen/Qwen3-4B", str(random_model)))
    code = run.main(["--profile", "mine.yaml", "--dry-run"])
    told = capsys.readouterr()
    assert code == Exit.BAD_INPUT
    assert "dapo by token, rewards scaled by group, clipped at -0.2 and +0.28, learning rate 1e-06" in told.out
    assert "backend vllm; in training rollouts vllm_colocate" in told.out
    assert "no CUDA device" in told.err


def test_a_preset_replaces_the_loss_of_a_shipped_profile_by_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    text = (PROFILES / "qwen3-4b.yaml").read_text()
    Path("mine.yaml").write_text(text.replace("loss: dapo", "loss: gspo"))
    assert run.main(["--profile", "mine.yaml", "--dry-run"]) == Exit.BAD_INPUT
    assert "grpo by sequence, rewards scaled by group, clipped at -0.0003 and +0.0004" in capsys.readouterr().out


def test_the_topology_is_as_drawn() -> None:
    """The drawing is committed; a change of the loop shows in its diff. ``build`` reads only the roles here."""
    roles = load_roles()
    drawn = build(roles, None).compile().get_graph().draw_mermaid()  # type: ignore[arg-type]
    assert drawn == TOPOLOGY.read_text()
    for name, role in roles.items():
        assert f"role = {name}" in drawn
        assert role.name == name


@pytest.mark.parametrize("gates_passed", [True, False])
@pytest.mark.parametrize("verdict", ["approve", "revise", "reject"])
@pytest.mark.parametrize("revision", [0, 2])
def test_no_critic_lifts_a_gate(gates_passed: bool, verdict: str, revision: int) -> None:
    conditions = [{"path": "a.data_ratio", "op": "up"}] if verdict == "revise" else []
    critique = Critique.model_validate({"reason": "because", "verdict": verdict, "conditions": conditions})
    review, why = reviewed(gates_passed, critique, revision, max_revisions=2)
    assert (review == "approve") == (gates_passed and verdict == "approve")
    assert (review == "revise") <= (revision < 2)
    assert why


def test_a_revision_needs_a_gate_or_a_condition() -> None:
    empty = Critique(reason="hm", verdict="revise", conditions=[])
    assert reviewed(True, empty, 0, max_revisions=2)[0] == "approve"
    assert reviewed(False, empty, 0, max_revisions=2)[0] == "revise"
    assert reviewed(False, empty, 2, max_revisions=2)[0] == "reject"


def test_the_recursion_limit_covers_every_run() -> None:
    longest = 1 + 5 + 3 * (3 + 3 * 3 + 7) + 1
    assert recursion_limit(stages=3, max_revisions=2) > longest


@pytest.mark.parametrize(
    ("name", "content"), [("model.safetensors", b""), ("tokenizer.json", b"{}"), ("chat_template.jinja", b"{% if %}")]
)
def test_a_damaged_checkpoint_binds_no_run_directory(
    tmp_path: Path, profile: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    data = yaml.safe_load(profile.read_text())
    model = Path(shutil.copytree(data["model"], tmp_path / "model"))
    (model / name).write_bytes(content)
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump(data | {"model": str(model)}))
    config = settings_file(tmp_path, environment="parity:Parity", profile=str(mine))
    assert run.main(["--config", str(config), "--run-dir", str(tmp_path / "run")]) == Exit.BAD_INPUT
    printed = capsys.readouterr().err
    assert str(model) in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_stage_that_cannot_be_trained_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: dict[str, object]
) -> None:
    async def drive(*_: object) -> None:
        raise StageInputError("the dataset has 3 prompts,\nexpected 8")

    monkeypatch.setattr(session, "drive", drive)
    config = settings_file(tmp_path, **base)
    assert run.main(["--config", str(config), "--run-dir", str(tmp_path / "run")]) == Exit.BAD_INPUT
    assert "has 3 prompts, expected 8" in capsys.readouterr().err

"""The Gymnasium and PettingZoo faces: the official checkers without a warning, and the traps that others fell into."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import gymnasium
import numpy as np
import pettingzoo
import pygame
import pytest
from gymnasium.utils.env_checker import check_env

import envsim.faces
from envsim.api import EnvsimError
from envsim.faces import source
from envsim.faces.gymnasium_env import LakeEnv
from envsim.faces.pettingzoo_env import LakeParallelEnv, env
from envsim.faces.picture import COLOURS, FAULT, cell_pixels, picture
from envsim.faces.source import MAPS
from envsim.formats.movingai import write_scenario
from envsim.lake.config import EnvConfig
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.simulator import NAMES, actions_along
from envsim.lake.solver import analyse, path_of
from envsim.lake.svg import PALETTE
from envsim.lake.verifier import verify

with warnings.catch_warnings():
    # The checkers import an environment of PettingZoo's in a way that PettingZoo itself has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, state_test

pytestmark = pytest.mark.filterwarnings("error")

IDS = ["envsim/Lake-v0", "envsim/Lake8x8-v0", "envsim/GeneratedLake-v0"]
LETTERS = {name[0].upper(): action for action, name in enumerate(NAMES)}
VIA = make_instance(["...", ".@.", "..."], [(0, 0), (2, 2)], [(0, 2), (2, 0)], via=[(2, 0), (0, 2)])
SMALL = {
    "sizes": {str(n): {"data_ratio": float(n in (3, 5)), "hole_ratio": 0.2, "wait_ratio": 0.5} for n in range(3, 11)}
}
MIXED = {
    "sizes": {str(n): {"data_ratio": float(n in (5, 6)), "hole_ratio": 0.3, "wait_ratio": 0.0} for n in range(3, 11)},
    "topology": {"rooms": 1, "corridor": 1},
    "placement": {"uniform": 1, "far": 1},
    "goals": {"1": 1, "2": 1},
    "success_rate": 0.96,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "slippery": {"success_rate": 0.8},
    "shaped": {"reward": "shaped", "discount": 0.9},
    "four agents": {"map_name": "rotation"},
    "intermediate goals": {"instance": VIA},
    "two sizes": {"config": SMALL},
    "mixtures": {"config": MIXED},
}


def certified(name: str) -> LakeInstance:
    rows, starts, goals = MAPS[name]
    return make_instance(rows, starts, goals, analyse(rows, starts, goals).certificate())


def solution(instance: LakeInstance) -> Iterator[list[int]]:
    assert instance.certificate is not None
    assert instance.certificate.plan is not None
    for step in zip(*instance.certificate.plan, strict=True):
        yield [LETTERS[letter] for letter in step]


# --- optima of instances that bring no certificate


def test_an_optimal_plan_is_optimal_whoever_brings_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = make_instance(*MAPS["passing"])

    def outcome() -> str:
        made = LakeEnv(instance=bare)
        made.reset()
        info: dict[str, Any] = {}
        for actions in solution(certified("passing")):
            *_, info = made.step(np.array(actions))
        return str(info["outcome"])

    assert outcome() == "optimal"
    # Where proving it would take too long, nothing is said of the optimum.
    monkeypatch.setattr(source, "MAX_JOINT_CELLS", 0)
    assert outcome() == "valid"


# --- instances in and out


def test_the_drawn_instance_can_be_had_and_its_plan_played() -> None:
    made = gymnasium.make("envsim.faces:envsim/GeneratedLake-v0")
    with pytest.raises(EnvsimError, match="call reset first"):
        _ = made.unwrapped.instance  # type: ignore[attr-defined]
    both = LakeParallelEnv(config={})
    for seed in range(5):
        _, info = made.reset(seed=seed)
        drawn = made.unwrapped.instance  # type: ignore[attr-defined]
        both.reset(seed=seed)
        assert info["instance"] == drawn.id == both.instance.id
        paths = [path_of(start, moves) for start, moves in zip(drawn.starts, drawn.certificate.plan, strict=True)]
        for actions in actions_along(paths):
            *_, info = made.step(np.array(actions))
        assert info["outcome"] == "optimal"


def test_paths_that_are_no_moves() -> None:
    assert actions_along([[(0, 0), (0, 1), (1, 1)], [(2, 2)]]) == [[2, 4], [1, 4]]
    assert actions_along([[[1, 1], [1, 0]], [[0, 0], [0, 0]]]) == [[0, 4]]
    with pytest.raises(EnvsimError, match=r"agent 1 goes from \(0,0\) to \(1,1\) at t = 1"):
        actions_along([[(0, 0)], [(0, 0), (1, 1)]])
    for nothing in ([], [[]]):
        with pytest.raises(EnvsimError, match="expected at least one cell"):
            actions_along(nothing)


def test_an_instance_may_be_a_mapping_or_a_scenario(tmp_path: Path) -> None:
    bare = make_instance(*MAPS["passing"])
    write_scenario(bare, tmp_path / "w.scen")
    layout = {"rows": bare.rows, "starts": bare.starts, "goals": [list(cell) for cell in bare.goals]}
    loud = tmp_path / "LOUD.SCEN"
    loud.write_bytes((tmp_path / "w.scen").read_bytes())
    for given in (bare, layout, bare.model_dump(mode="json"), tmp_path / "w.scen", str(tmp_path / "w.scen"), loud):
        made = gymnasium.make("envsim.faces:envsim/Lake-v0", instance=given)
        made.reset()
        assert made.unwrapped.instance.id == bare.id  # type: ignore[attr-defined]
        assert made.unwrapped.instance.certificate.makespan == 6  # type: ignore[attr-defined]


# --- the official checkers


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_checks_every_id(name: str) -> None:
    made = gymnasium.make(f"envsim.faces:{name}")
    check_env(made.unwrapped)
    made.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_gymnasium_checks_every_variant(variant: str) -> None:
    made = gymnasium.make("envsim.faces:envsim/Lake-v0", **VARIANTS[variant])
    check_env(made.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pettingzoo_checks_every_variant(variant: str) -> None:
    arguments = VARIANTS[variant]
    parallel_api_test(LakeParallelEnv(**arguments), num_cycles=1000)
    parallel_seed_test(lambda: LakeParallelEnv(**arguments), num_cycles=100)


@pytest.mark.parametrize("name", IDS)
def test_pettingzoo_makes_every_id(name: str) -> None:
    made = pettingzoo.make("parallel", name)
    assert isinstance(made, LakeParallelEnv)
    assert made.max_cycles == gymnasium.spec(name).max_episode_steps
    parallel_api_test(made, num_cycles=50)
    with warnings.catch_warnings():
        # This checker takes dictionaries as observations only from a list of PettingZoo's own environments.
        warnings.filterwarnings("ignore", "Observation (is not a NumPy array|space for each agent probably should)")
        api_test(pettingzoo.make("aec", name), num_cycles=50)


def test_pettingzoo_renders() -> None:
    render_test(env, custom_tests={"ansi": lambda text: "step " in text})


def test_pettingzoo_state() -> None:
    made = LakeParallelEnv(instance=VIA)
    made.reset(seed=0)
    state_test(env(instance=VIA), made)
    assert made.state_space.contains(made.state())


def test_vector_environments() -> None:
    many = gymnasium.make_vec("envsim.faces:envsim/GeneratedLake-v0", num_envs=3, vectorization_mode="sync")
    seen, info = many.reset(seed=0)
    assert seen["map"].shape == (3, 10, 10)
    assert len(set(info["instance"])) == 3
    for _ in range(5):
        many.step(many.action_space.sample())
    many.close()


# --- seeds


def ids_after(seed: int, **arguments: Any) -> list[str]:
    made = LakeEnv(config=SMALL, **arguments)
    found = [made.reset(seed=seed)[1]["instance"]]
    return found + [made.reset()[1]["instance"] for _ in range(3)]


def test_a_seed_decides_the_instance_at_once() -> None:
    assert ids_after(5) == ids_after(5)
    assert ids_after(5)[0] != ids_after(9)[0]
    assert len(set(ids_after(5))) == 4


def test_both_faces_draw_the_same_instances() -> None:
    parallel = LakeParallelEnv(config=SMALL)
    _, infos = parallel.reset(seed=5)
    assert infos["agent_0"]["instance"] == ids_after(5)[0]


def test_noise_changes_nothing_about_instances() -> None:
    assert ids_after(5, success_rate=0.5) == ids_after(5)


def test_drawn_instances_are_what_the_configuration_says() -> None:
    made = LakeEnv(config=EnvConfig.model_validate(SMALL), split="test")
    sizes, waits = [], []
    made.reset(seed=0)
    for _ in range(60):
        seen, _ = made.reset()
        assert made._episode is not None
        instance = made._episode.instance
        assert instance.split == "test"
        assert instance.certificate is not None
        assert instance.certificate.solvable
        sizes.append(instance.size)
        waits.append(instance.certificate.needs_wait_soc)
        assert (seen["map"] == 2).sum() == 25 - instance.size**2
        assert (seen["map"] == 1).sum() == round(0.2 * instance.size**2)
    assert set(sizes) == {3, 5}
    # Both are even odds: 60 draws are within 15 and 45 but for one in ten thousand.
    assert 15 <= sizes.count(3) <= 45
    assert 15 <= waits.count(True) <= 45


def test_mixtures_are_drawn_from_and_noise_is_the_configurations() -> None:
    made = LakeEnv(config=MIXED)
    drawn: set[Any] = set()
    made.reset(seed=0)
    for _ in range(60):
        seen, _ = made.reset()
        assert made._episode is not None
        instance = made._episode.instance
        assert made._episode.simulator.success_rate == instance.success_rate == 0.96
        ahead = [cell != start for cell, start in zip(instance.via or [], instance.starts, strict=False)]
        assert seen["via_ahead"].tolist() == (ahead or [0, 0])
        assert seen["via"].tolist() == [list(cell) for cell in instance.via or instance.goals]
        drawn |= {instance.size, instance.topology, instance.placement, instance.via is None}
    assert drawn == {5, 6, "rooms", "corridor", "uniform", "far", True, False}
    assert LakeEnv(config=MIXED, success_rate=1.0).reset(seed=0)[1]["instance"] == made.reset(seed=0)[1]["instance"]


# --- the rules, through the faces


def test_actions_are_frozen_lakes() -> None:
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    rows, starts, goals = MAPS["4x4"]
    ours = LakeEnv(instance=make_instance(rows, starts[:1], goals[:1]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        theirs, _ = lake.reset()
        seen, _ = ours.reset()
        done = False
        while not done:
            action = int(rng.integers(4))
            theirs, reward, done, _, _ = lake.step(action)
            seen, our_reward, our_done, _, _ = ours.step(np.array([action]))
            assert tuple(seen["agents"][0]) == divmod(theirs, 4)
            assert (reward, done) == (our_reward, our_done)


@pytest.mark.parametrize("name", list(MAPS))
def test_an_optimal_plan_is_paid_and_counted(name: str) -> None:
    instance = certified(name)
    certificate = instance.certificate
    assert certificate is not None
    made = LakeEnv(map_name=name)
    made.reset(seed=0)
    rewards, info, done = [], {}, False
    for actions in solution(instance):
        assert not done
        _, reward, done, _, info = made.step(np.array(actions))
        rewards.append(reward)
    assert done
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert info["outcome"] == "optimal"
    assert "fault" not in info
    assert info["metrics"] == {
        "CSR": 1.0,
        "ISR": 1.0,
        "SoC": certificate.sum_of_costs_at_makespan,
        "makespan": certificate.makespan,
        "ep_length": certificate.makespan,
    }


def test_an_optimal_plan_by_intermediate_goals() -> None:
    """The certificate's plan of every instance with two goals an agent is what the faces call optimal."""
    two = {**MIXED, "goals": {"2": 1}, "success_rate": 1.0}
    made = LakeEnv(config=two, reward="shaped")
    made.reset(seed=1)
    for _ in range(25):
        made.reset()
        assert made._episode is not None
        total, done, info = 0.0, False, {}
        for actions in solution(made._episode.instance):
            assert not done
            _, reward, done, _, info = made.step(np.array(actions))
            total += reward
        assert done
        assert info["outcome"] == "optimal"
        assert total == pytest.approx(1)


def test_a_fault_ends_it_for_all() -> None:
    made = LakeParallelEnv(map_name="passing")
    made.reset(seed=0)
    made.step({"agent_0": 2, "agent_1": 0})
    _, rewards, terminated, truncated, infos = made.step({"agent_0": 2, "agent_1": 0})
    assert rewards == {"agent_0": 0.0, "agent_1": 0.0}
    assert terminated == {"agent_0": True, "agent_1": True}
    assert truncated == {"agent_0": False, "agent_1": False}
    assert made.agents == []
    for info in infos.values():
        assert info["outcome"] == "vertex_conflict"
        assert info["fault"] == {"step": 2, "agent": 0, "cell": (1, 2)}
        assert info["metrics"] == {"CSR": 0.0, "ISR": 0.0, "SoC": 4, "makespan": 2, "ep_length": 2}
    with pytest.raises(EnvsimError, match=r"expected one for each of \[\]"):
        made.step({"agent_0": 4, "agent_1": 4})


def test_both_faces_play_the_same() -> None:
    one, many = LakeEnv(success_rate=0.7), LakeParallelEnv(success_rate=0.7)
    rng = np.random.default_rng(1)
    for seed in range(20):
        one.reset(seed=seed)
        many.reset(seed=seed)
        while many.agents:
            actions = rng.integers(5, size=2)
            seen, reward, done, _, info = one.step(actions)
            all_seen, rewards, terminated, _, infos = many.step(dict(zip(many.agents, actions.tolist(), strict=True)))
            assert rewards["agent_0"] == rewards["agent_1"] == reward
            assert terminated["agent_0"] == done
            assert [infos[f"agent_{i}"]["executed"] for i in range(2)] == info["executed"].tolist()
            assert (all_seen["agent_0"]["observation"]["agents"] == seen["agents"]).all()
            # Every agent comes first in what it sees itself.
            assert (all_seen["agent_1"]["observation"]["agents"] == seen["agents"][::-1]).all()
            assert (all_seen["agent_1"]["observation"]["goals"] == seen["goals"][::-1]).all()
            if seed == 0:
                break
        many.agents = []


def test_intermediate_goals_are_seen() -> None:
    made = LakeEnv(instance=VIA)
    seen, _ = made.reset()
    assert seen["via"].tolist() == [[2, 0], [0, 2]]
    assert seen["via_ahead"].tolist() == [1, 1]
    for _ in range(2):
        seen, *_ = made.step(np.array([1, 3]))
    assert seen["via_ahead"].tolist() == [0, 0]


def test_by_default_nothing_slips() -> None:
    made = LakeEnv(map_name="8x8")
    made.reset(seed=0)
    for _ in range(7):
        *_, info = made.step(np.array([2, 4]))
        assert info["executed"].tolist() == [2, 4]


def test_slips_are_exposed_and_explain_what_is_seen() -> None:
    made = LakeEnv(instance=make_instance(["." * 9] * 9, [(4, 4)], [(8, 8)]), success_rate=0.5)
    steps = {0: (0, -1), 1: (1, 0), 2: (0, 1), 3: (-1, 0)}
    slipped = 0
    for seed in range(30):
        seen, _ = made.reset(seed=seed)
        for _ in range(3):
            before = seen["agents"][0]
            seen, *_, info = made.step(np.array([3]))
            assert tuple(seen["agents"][0] - before) == steps[int(info["executed"][0])]
            slipped += int(info["executed"][0]) != 3
    assert 25 <= slipped <= 65


def test_masked_samples_stay_on_the_map_and_out_of_holes() -> None:
    made = LakeEnv()
    made.action_space.seed(0)
    for seed in range(30):
        seen, info = made.reset(seed=seed)
        done = False
        while not done:
            before = seen["agents"]
            actions = made.action_space.sample(mask=info["action_mask"])
            seen, _, done, _, info = made.step(actions)
            assert ((seen["agents"] != before).any(axis=1) | (actions == 4)).all()
            assert info["outcome"] != "hole"


def test_the_executed_path_is_what_the_verifier_grades() -> None:
    made = LakeEnv(success_rate=0.9)
    made.action_space.seed(1)
    outcomes = set()
    for seed in range(60):
        seen, info = made.reset(seed=seed)
        paths = [[tuple(cell)] for cell in seen["agents"].tolist()]
        done, steps = False, 0
        while not done and steps < 12:
            seen, _, done, _, info = made.step(made.action_space.sample(mask=info["action_mask"]))
            steps += 1
            for path, cell in zip(paths, seen["agents"].tolist(), strict=True):
                path.append(tuple(cell))
        assert made._episode is not None
        instance = made._episode.instance
        assert verify(instance.rows, instance.starts, instance.goals, paths).outcome == info["outcome"]
        outcomes.add(info["outcome"])
    assert {"hole", "vertex_conflict", "goal_not_reached"} <= outcomes


# --- rewards and ends


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_shaping_changes_no_return(discount: float) -> None:
    """The discounted sum of an ended episode is that of the sparse reward, whatever was played."""
    instance = certified("4x4")
    shaped = LakeEnv(instance=instance, reward="shaped", discount=discount)
    shaped.action_space.seed(2)
    plans: list[list[Any]] = [list(solution(instance))]
    plans += [[shaped.action_space.sample() for _ in range(200)] for _ in range(30)]
    wins = 0
    for plan in plans:
        shaped.reset()
        total, sparse, factor, done = 0.0, 0.0, 1.0, False
        for actions in plan:
            _, reward, done, _, info = shaped.step(np.array(actions))
            total += factor * reward
            sparse += factor * info["metrics"]["CSR"]
            factor *= discount
            if done:
                break
        assert done
        assert total == pytest.approx(sparse)
        wins += sparse > 0
    assert 1 <= wins < len(plans)


def test_shaping_pays_for_progress_on_the_way() -> None:
    made = LakeEnv(map_name="passing", reward="shaped")
    made.reset()
    # Of eight moves that both have left, the first agent makes one.
    assert made.step(np.array([2, 4]))[1] == pytest.approx(1 / 8)
    assert made.step(np.array([0, 4]))[1] == pytest.approx(-1 / 8)


def test_time_is_up() -> None:
    limited = gymnasium.make("envsim.faces:envsim/Lake-v0", max_episode_steps=3)
    limited.reset()
    ends = [limited.step(np.array([4, 4]))[2:] for _ in range(3)]
    assert [(done, cut) for done, cut, _ in ends] == [(False, False), (False, False), (False, True)]
    assert ends[-1][2]["metrics"] == {"CSR": 0.0, "ISR": 0.0, "SoC": 6, "makespan": 3, "ep_length": 3}
    made = LakeParallelEnv(max_cycles=2)
    made.reset()
    stay = {"agent_0": 4, "agent_1": 4}
    assert made.step(stay)[3] == {"agent_0": False, "agent_1": False}
    _, _, terminated, truncated, _ = made.step(stay)
    assert truncated == {"agent_0": True, "agent_1": True}
    assert terminated == {"agent_0": False, "agent_1": False}
    assert made.agents == []


# --- pictures


def test_text() -> None:
    made = LakeEnv("ansi", map_name="passing")
    made.reset()
    text = made.render()
    assert isinstance(text, str)
    assert text.startswith("step 0\n")
    made.step(np.array([2, 0]))
    made.step(np.array([2, 0]))
    text = made.render()
    assert isinstance(text, str)
    assert text.startswith("step 2: a right b left  [vertex_conflict]\n")


def test_pixels() -> None:
    made = LakeEnv("rgb_array", map_name="passing")
    made.reset()
    first = made.render()
    assert isinstance(first, np.ndarray)
    side = cell_pixels(2, 5)
    assert first.shape == (2 * side, 5 * side, 3)
    assert first.dtype == np.uint8
    assert not (first == FAULT).all(axis=2).any()
    for _ in range(2):
        made.step(np.array([2, 0]))
    last = made.render()
    assert isinstance(last, np.ndarray)
    red = np.argwhere((last == FAULT).all(axis=2))
    assert len(red) > 0
    # The frame is around the cell in which they met, (1, 2), and nowhere else.
    assert (red // side == (1, 2)).all()
    assert (made.render() == last).all()
    # Both are seen in it.
    cell = last[side:, 2 * side : 3 * side]
    assert all((cell == colour).all(axis=2).sum() > side for colour, _ in COLOURS[:2])


def test_agents_have_the_colours_of_the_svgs_and_their_goals_letters() -> None:
    assert [tuple("#" + bytes(colour).hex() for colour in pair) for pair in COLOURS] == [
        tuple("#" + ("".join(2 * digit for digit in colour[1:]) if len(colour) == 4 else colour[1:]) for colour in pair)
        for pair in PALETTE
    ]
    pixels = picture(make_instance(*MAPS["passing"]), MAPS["passing"][1])
    side = cell_pixels(2, 5)
    # Agent a is at the goal of b: its disc is a's, the letter in the corner b's.
    cell = pixels[side:, :side]
    assert (cell[side // 2, side // 4] == COLOURS[0][0]).all()
    corner = cell[: side // 4, 3 * side // 4 :]
    assert (corner == COLOURS[1][0]).all(axis=2).sum() > 5
    assert not (corner == COLOURS[0][0]).all(axis=2).any()


def test_the_window() -> None:
    made = gymnasium.make("envsim.faces:envsim/GeneratedLake-v0", render_mode="human")
    made.reset(seed=0)
    made.step(np.array([4, 4]))
    assert made.render() is None
    surface = pygame.display.get_surface()
    assert surface is not None
    for seed in range(4):
        _, info = made.reset(seed=seed)
        rows = int(info["instance"].split("x")[0])
        surface = pygame.display.get_surface()
        assert surface is not None
        assert surface.get_size() == (rows * cell_pixels(rows, rows),) * 2
    made.close()
    made.close()


@pytest.mark.parametrize("made", [LakeEnv(), LakeParallelEnv()], ids=["gymnasium", "pettingzoo"])
def test_rendering_without_a_mode_says_so(made: Any) -> None:
    made.reset()
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert made.render() is None


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"map_name": "4x5"}, "unknown map '4x5'; did you mean '4x4'"),
        ({"map_name": "4x4", "config": {}}, "map_name and config are given; expected one of"),
        ({"config": {"agents": {"2": 1, "3": 1}}}, "expected one number of agents"),
        ({"config": {"agent": {}}}, "unknown key 'agent'"),
        ({"split": "test"}, "split is 'test' but there is no config"),
        ({"map_name": "4x4", "split": "tset"}, "split is 'tset' but there is no config"),
        ({"instance": "w.json"}, "instance is 'w.json'; expected a LakeInstance, a mapping"),
        ({"instance": 3}, "instance is 3; expected a LakeInstance"),
        ({"instance": {"rows": ["."]}}, "instance: starts: Field required"),
        (
            {"instance": {"rows": ["."], "starts": [[0, 1]], "goals": [[0, 0]]}},
            r"instance: start of agent 0 is \(0,1\), outside",
        ),
        ({"instance": {**VIA.model_dump(mode="json"), "hash": "0"}}, "instance: hash is '0', but"),
        ({"config": {}, "split": "tset"}, "unknown split 'tset'; did you mean 'test'"),
        ({"reward": "dense"}, "reward is 'dense'; expected one of sparse, shaped"),
        ({"discount": 2}, "discount is 2; expected 0 to 1"),
        ({"render_mode": "svg"}, "render_mode is 'svg'; expected one of human, ansi, rgb_array"),
        ({"max_cycles": 0}, "max_cycles is 0; expected at least 1 step"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvsimError, match=message):
        LakeParallelEnv(**arguments)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], "there are 1 actions; expected 2"),
        ([0, 5], "expected each from 0 to 4"),
        ([0.5, 1], "expected a whole number from 0 to 4"),
        (3, "expected a whole number from 0 to 4"),
    ],
)
def test_bad_actions(actions: Any, message: str) -> None:
    made = LakeEnv()
    made.reset()
    with pytest.raises(EnvsimError, match=message):
        made.step(actions)


def test_order_of_calls() -> None:
    for made in (LakeEnv("ansi"), LakeParallelEnv("ansi")):
        with pytest.raises(EnvsimError, match="there is no episode yet; call reset first"):
            made.render()
    parallel = LakeParallelEnv()
    parallel.reset()
    with pytest.raises(EnvsimError, match=r"there are actions for \['agent_0'\]; expected one for each of"):
        parallel.step({"agent_0": 1})


def test_what_is_registered() -> None:
    assert envsim.faces.__doc__ is not None
    assert all(name in envsim.faces.__doc__ and name in gymnasium.registry for name in IDS)


HOPELESS = {
    "agents": {5: 1},
    "sizes": {n: {"data_ratio": float(n == 3), "hole_ratio": 0.5, "wait_ratio": 0.2} for n in range(3, 11)},
}


@pytest.mark.parametrize("face", [LakeEnv, LakeParallelEnv])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"success_rate": 2}, "success_rate is 2"),
        ({"success_rate": -1}, "success_rate is -1"),
        ({"success_rate": "a"}, "success_rate is 'a'"),
        ({"success_rate": float("nan")}, "success_rate is nan"),
        ({"discount": "a"}, "discount is 'a'"),
        ({"reward": ["sparse"]}, "reward is"),
        ({"map_name": 5}, "map_name is 5"),
        ({"instance": "x"}, "instance is 'x'"),
        ({"config": {"agents": {2: 1}}, "split": 7}, "unknown split 7"),
        ({"config": HOPELESS}, "3x3 with 5 agents and 4 holes: "),
    ],
)
def test_wrong_arguments_are_refused_at_construction(face: type, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(EnvsimError) as caught:
        face(**arguments)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("max_cycles", ["x", float("nan"), 2.5, True, 0])
def test_wrong_cycles(max_cycles: Any) -> None:
    with pytest.raises(EnvsimError, match="max_cycles is"):
        LakeParallelEnv(max_cycles=max_cycles)


@pytest.mark.parametrize(
    "actions", [None, [0, 1], np.array([0, 1]), {0: 1, "agent_0": 2}, {"agent_0": 0, "agent_1": np.array([1])}]
)
def test_wrong_actions_of_the_parallel_face(actions: Any) -> None:
    face = LakeParallelEnv()
    face.reset(seed=0)
    with pytest.raises(EnvsimError, match="expected"):
        face.step(actions)


def test_unknown_reset_options_are_refused() -> None:
    with pytest.raises(EnvsimError, match="options of reset"):
        LakeEnv().reset(seed=0, options={"bogus": 1})
    LakeEnv().reset(seed=0, options={})

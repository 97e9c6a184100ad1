"""A replay as one animated SVG that plays wherever a picture may stand: no script, nothing fetched.

All agents move at once, a step at a time, up to the verifier's first fault, which is ringed and named; there the film
rests before it begins again. It is animated by CSS. Without animation (a reader who prefers reduced motion, a printer)
it shows its last picture, with the paths. Same replay, same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from math import dist

from envsim.api import Replay
from envsim.lake.draw import describe, faulty_agents, outcome, outcome_details
from envsim.lake.instance import LakeInstance
from envsim.lake.svg import CELL, MARGIN, PALETTE, Sheet, board, disc, goals, number, page, tags

LONGEST = 120
"""Steps that a film shows; of a longer plan the last ones, which keeps the file small."""
STEP_SECONDS, MOST_SECONDS = 0.7, 30.0
"""Of one step, and of all together: a long plan plays faster."""
BEFORE, AFTER = 0.8, 2.6
"""Seconds at rest before the first step and after the last."""
BUMP = 0.2
"""How far two agents that swap get on their way: where their discs touch."""
ASIDE = 0.27
"""How far two agents in one cell stand from its centre, in cells, so that both are seen."""

Point = tuple[float, float]
_STYLE = (
    ".trail{fill:none;stroke-width:4;stroke-linejoin:round;stroke-linecap:round;opacity:.55}"
    ".halo{fill:none;stroke:#fff;stroke-width:6}.ring{fill:none;stroke:#d0021b;stroke-width:3.5}"
    "text.fault{fill:#c4001a}text.good{fill:#00704f}.bar{fill:#8fa3b0}.rail{fill:#8fa3b0;opacity:.3}"
    "@media (prefers-color-scheme:dark){text.fault{fill:#ff8a80}text.good{fill:#5fd3aa}}"
)
_STILL = "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"


def film(instance: LakeInstance, replay: Replay) -> str:
    """The SVG document of a replay of ``instance``, see ``Lake.replay``."""
    sheet = Sheet(len(instance.rows), len(instance.rows[0]), footer=3)
    first = max(0, len(replay.states) - 1 - LONGEST)
    tracks = _tracks(sheet, replay, first)
    clock = _Clock(len(tracks[0]) - 1)
    parts, rules = [board(sheet, instance.rows), *goals(sheet, instance)], []
    for i, track in enumerate(tracks):
        shift = 3 * (i - (len(tracks) - 1) / 2) if len(tracks) <= len(PALETTE) else 0
        shown, rule = _trail(i, [(x + shift, y + shift) for x, y in track], clock)
        parts.append(shown)
        rules.append(rule)
    _stand_aside(replay, tracks)
    for i, track in enumerate(tracks):
        x, y = track[-1]
        parts.append(f'<g id="m{i}" transform="translate({number(x)} {number(y)})">{disc(i, 0, 0)}</g>')
        rules.append(clock.rule(f"m{i}", track, lambda at: f"transform:translate({number(at[0])}px,{number(at[1])}px)"))
    parts += [*tags(sheet, instance), _ring(replay, tracks), _footer(sheet, instance, replay, clock, first)]
    rules += clock.ending("e") + clock.counting(sheet.text_size * 1.5)
    title = f"{outcome(replay)}: {outcome_details(instance, replay)}. {describe(instance)}"
    return page(sheet, title, parts, _STYLE + "".join(rules) + _STILL)


class _Clock:
    """When a film's steps are, as percentages of its whole time, and CSS rules by them."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.moving = min(STEP_SECONDS * steps, MOST_SECONDS)
        self.seconds = BEFORE + self.moving + AFTER

    def percent(self, step: float) -> str:
        return f"{number(100 * (BEFORE + self.moving * step / max(self.steps, 1)) / self.seconds)}%"

    def rule(self, name: str, values: Sequence[Point], declare: Callable[[Point], str]) -> str:
        """Animate the element ``name`` through one value a step. Nothing for what never changes."""
        if all(value == values[0] for value in values):
            return ""
        last = len(values) - 1
        frames = []
        for t, value in enumerate(values):
            if 0 < t < last and values[t - 1] == value == values[t + 1]:
                continue
            when = {0: f"0%,{self.percent(0)}", last: f"{self.percent(last)},to"}.get(t, self.percent(t))
            frames.append(f"{when}{{{declare(value)}}}")
        return self._animate(name, "ease-in-out", "".join(frames))

    def ending(self, name: str) -> list[str]:
        """Show the elements of a class from the last step on."""
        if not self.steps:
            return []
        frames = f"0%,{self.percent(self.steps)}{{opacity:0}}{self.percent(self.steps + 0.01)},to{{opacity:1}}"
        return [
            self._animate(name, "linear", frames, "."),
        ]

    def counting(self, line: float) -> list[str]:
        """Roll the strip of numbers up by one line a step, and fill the bar."""
        if not self.steps:
            return []
        start, end = self.percent(0), self.percent(self.steps)
        roll = f"0%,{start}{{transform:translateY(0)}}{end},to{{transform:translateY({number(-line * self.steps)}px)}}"
        fill = f"0%,{start}{{transform:scaleX(0)}}{end},to{{transform:scaleX(1)}}"
        return [self._animate("n", f"steps({self.steps})", roll), self._animate("b", "linear", fill)]

    def _animate(self, name: str, timing: str, frames: str, kind: str = "#") -> str:
        return (
            f"{kind}{name}{{animation:{name} {number(self.seconds)}s {timing} infinite}}@keyframes {name}{{{frames}}}"
        )


def _tracks(sheet: Sheet, replay: Replay, first: int) -> list[list[Point]]:
    """Every agent's points, a step each. Two agents that swap stop where they meet."""
    states = replay.states[first:]
    tracks = [[sheet.centre(*_near(sheet, state[i])) for state in states] for i in range(len(states[0]))]
    involved = faulty_agents(replay)
    if replay.verdict.outcome == "edge_conflict":
        for agent in involved:
            (x, y), (u, v) = tracks[agent][-2:]
            tracks[agent][-1] = (x + BUMP * (u - x), y + BUMP * (v - y))
    return tracks


def _stand_aside(replay: Replay, tracks: list[list[Point]]) -> None:
    """Part two agents that end in one cell, so that both are seen."""
    if replay.verdict.outcome == "vertex_conflict":
        for agent, side in zip(faulty_agents(replay), (-ASIDE, ASIDE), strict=True):
            x, y = tracks[agent][-1]
            tracks[agent][-1] = (x + side * CELL, y)


def _near(sheet: Sheet, cell: Sequence[int]) -> Point:
    """A cell outside the map is shown at its edge, wherever it is."""
    row, column = (min(max(at, -0.6), end - 0.4) for at, end in zip(cell, (sheet.rows, sheet.columns), strict=True))
    return row, column


def _trail(agent: int, track: Sequence[Point], clock: _Clock) -> tuple[str, str]:
    """The path of an agent, drawn as it goes, and the rule that does so."""
    colour = agent % len(PALETTE)
    (x, y), lengths = track[0], [0.0]
    path = f"M{number(x)} {number(y)}"
    for before, after in pairwise(track):
        lengths.append(lengths[-1] + dist(before, after))
        path += f"L{number(after[0])} {number(after[1])}" if after != before else ""
    whole = lengths[-1]
    rule = clock.rule(
        f"p{agent}", [(whole - run, 0) for run in lengths], lambda at: f"stroke-dashoffset:{number(at[0])}"
    )
    dashes = f' stroke-dasharray="{number(whole)} {number(whole + CELL)}"' if whole else ""
    start = f'<circle class="f{colour}" cx="{number(x)}" cy="{number(y)}" r="4.5" opacity=".7"/>'
    return f'{start}<path id="p{agent}" class="trail s{colour}" d="{path}"{dashes}/>' if whole else start, rule


def _ring(replay: Replay, tracks: Sequence[Sequence[Point]]) -> str:
    """Around whoever is at fault."""
    points = [tracks[agent][-1] for agent in faulty_agents(replay)]
    if not points:
        return ""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    radius = 20 + dist(points[0], points[-1]) / 2
    at = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
    return f'<g class="e"><circle class="halo" {at}/><circle class="ring" {at}/></g>'


def _footer(sheet: Sheet, instance: LakeInstance, replay: Replay, clock: _Clock, first: int) -> str:
    """The time with a bar, and below, at the end, the verdict."""
    size, left = sheet.text_size, min(sheet.left, MARGIN)
    line = 1.5 * size
    words = "good" if replay.verdict.valid else "fault"

    def text(style: str, row: int, content: str) -> str:
        place = f'x="{number(left)}" y="{number(sheet.baseline(row))}"'
        return f'<text class="label {style}" {place}>{escape(content)}</text>'

    numbers = "".join(
        f'<tspan x="0" y="{number(1.1 * size + line * t)}">{first + t}</tspan>' for t in range(clock.steps + 1)
    )
    window = f'x="{number(left + 2.1 * size)}" y="{number(sheet.baseline(0) - 1.1 * size)}"'
    return (
        f'<g font-size="{number(size)}">{text("", 0, "t =")}'
        f'<svg {window} width="{number(3 * size)}" height="{number(line)}">'
        f'<text id="n" class="label" transform="translate(0 {number(-line * clock.steps)})">{numbers}</text></svg>'
        f"{_bar(sheet, left + 6 * size, left) if clock.steps else ''}\n"
        f'<g class="e">{text(words, 1, outcome(replay))}{text("soft", 2, outcome_details(instance, replay))}</g></g>'
    )


def _bar(sheet: Sheet, x: float, right: float) -> str:
    """How much of the film is over."""
    place = f'x="{number(x)}" y="{number(sheet.baseline(0) - 0.55 * sheet.text_size)}" rx="1.5"'
    size = f'width="{number(sheet.width - right - x)}" height="{number(sheet.text_size / 3)}"'
    origin = f'style="transform-origin:{number(x)}px 0"'
    return f'<rect class="rail" {place} {size}/><rect id="b" class="bar" {place} {size} {origin}/>'

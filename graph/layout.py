"""Names of the files in a run directory: the one place that knows where each artefact lies."""

from __future__ import annotations

REPORT = "report/index.html"
DATABASE = "graph.sqlite"
BRANCHES = "branches"
"""What a thread that went back to an earlier checkpoint left behind."""
FORK = "fork.json"
"""In a run that was forked: from which, where, and what differs."""
FORKS = "forks.jsonl"
"""In the run that it was forked from: one line a fork."""
RESULT = "result.json"
"""What the run came to, on the sealed test set."""
APPROVAL = "approval.json"
"""Of a round: a person's word on its proposal."""
EPISODES = "rehearsal/episodes.jsonl"
"""Role episodes that every stage of the run rehearses from."""
EPISODES_RECORD = "rehearsal/episodes.json"
"""How many there are, and the sha256 of their file."""
NO_SIGNAL = "no_signal.json"
"""In a stage that could teach nothing, in place of the worker's result."""

NOTE_FILES = ("stages/*/notes/*.json", "stages/*/proposals/*/notes/*.json")
"""What roles beside the four wrote, what their tools said before, and what that was made from."""
ROLE_FILES = ("stages/*/answers/*.json", "stages/*/proposals/*/*.json", *NOTE_FILES)
"""What roles said, and what tools told them."""
TAKE_FILES = "stages/*/proposals/*/takes/*.json"
"""The same of a designer that asks more than once for one proposal."""


def stage_dir(stage: int) -> str:
    return f"stages/{stage:03d}"


def in_stage(stage: int, file: str) -> str:
    return f"{stage_dir(stage)}/{file}"


def in_round(stage: int, revision: int, file: str) -> str:
    """Files of one proposal and its review; revision 0 is the first proposal of a stage."""
    return in_stage(stage, f"proposals/{revision}/{file}")


def failed(answer: str) -> str:
    """What a role said that stopped the run, beside the place of the answer that it did not give."""
    return f"{answer.removesuffix('.json')}.failed.json"


def tool_results(answer: str) -> str:
    """What a role's tools said before it spoke, beside its answer."""
    return f"{answer.removesuffix('.json')}.tools.json"


def probe_file(stage: int, config_hash: str) -> str:
    """A configuration tried by the policy that a stage starts from."""
    return in_stage(stage, f"probes/{config_hash[:16]}.json")


def selection_dir(stage: int, candidates: str) -> str:
    """The current policy's answers to the candidates that a stage's tasks are chosen from, by the candidates' hash."""
    return in_stage(stage, f"selection/{candidates[:16]}")


def serving_dir(model_sha256: str) -> str:
    """What the server of a checkpoint says, and which process it is."""
    return f"serving/{model_sha256[:16]}"


def eval_dir(origin: int) -> str:
    """Evaluations of the checkpoint that a stage made; -1 = the starting checkpoint."""
    return "start/eval" if origin < 0 else in_stage(origin, "eval")

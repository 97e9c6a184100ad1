"""RunState: what travels between nodes and into the checkpointer. Plain JSON: pointers, hashes and small numbers.

Everything that a person wants to look at is a file in the run directory. The files decide; the state says where the run
stands. Its size does not grow with the number of stages.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

STATE_VERSION = 1

Review = Literal["approve", "revise", "reject"]
PERSON = "person"
"""Who a proposal is by that a person wrote; also the source of the stage's plan."""


class Pointer(TypedDict):
    """A checkpoint: the stage that made it (-1 = the starting one), where it lies, what it is, its anchor validity."""

    stage: int
    path: str
    """Relative to the run directory, or absolute for the starting checkpoint."""
    sha256: str
    anchor: float


class RunState(TypedDict, total=False):
    """One thread of one run directory."""

    schema_version: int
    stage: int
    """The stage being worked on; 0 is the stage on the initial configuration."""
    revision: int
    """Proposals of this stage that were sent back so far."""
    review: Review
    """What gates, critic and person made of the last proposal."""
    why: str
    """One line on the review."""
    current: Pointer
    champion: Pointer
    new: Pointer
    """The checkpoint that this stage trained, until it is accepted or rolled back."""
    config: str
    """File of the last accepted configuration."""
    reused: int
    """Designed stages that reused it because no proposal passed."""
    report: str

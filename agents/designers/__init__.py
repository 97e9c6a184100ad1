"""Who proposes the next configuration, behind one interface: models, rules, baselines, controls and adversaries."""

from agents.designers.base import DesignContext, Designer, Laboratory, ModelName, ProposalRejected, proposal, set_knob
from agents.designers.registry import check_designer, designer_files, designer_hash, get_designer
from agents.designers.settings import ADVERSARIES, DESIGNERS, DesignerSpec, designer_title, parse_designer

__all__ = [
    "ADVERSARIES",
    "DESIGNERS",
    "DesignContext",
    "Designer",
    "DesignerSpec",
    "Laboratory",
    "ModelName",
    "ProposalRejected",
    "check_designer",
    "designer_files",
    "designer_hash",
    "designer_title",
    "get_designer",
    "parse_designer",
    "proposal",
    "set_knob",
]

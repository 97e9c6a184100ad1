"""Role episodes for a tiny model's warm start: evidence, the right answer to it, both as the roles see them."""

from agents.episodes.drawn import draw_config, draw_episode, draw_evidence
from agents.episodes.stream import answer_text, episodes

__all__ = ["answer_text", "draw_config", "draw_episode", "draw_evidence", "episodes"]

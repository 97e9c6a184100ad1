"""Role bench: how a model does in the roles, on evidence that it never saw."""

from agents.bench.agreement import UNSEEN, agreement, direction, role_scores, with_success

__all__ = ["UNSEEN", "agreement", "direction", "role_scores", "with_success"]

"""Checkpoints, policy back ends, one RL stage as a job, evaluation. Knows nothing of roles."""

"""Standard faces of the lake: a Gymnasium environment and a PettingZoo parallel environment."""

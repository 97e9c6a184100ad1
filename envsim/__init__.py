"""Environments: configuration, instances, exact solver, verifier, splits and sets. Knows nothing of models."""

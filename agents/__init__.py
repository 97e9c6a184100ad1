"""Roles, prompts, structured output, evidence, designers and gates. Knows nothing of the topology."""

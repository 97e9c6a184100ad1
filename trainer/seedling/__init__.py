"""The embedded model: tokenizer, architecture and warm start, rebuilt from a seed by ``python -m trainer.seedling``."""

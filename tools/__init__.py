"""The langchain tools that a role may call: thin wrappers over envsim and trainer."""

"""The commands of ``python -m envsim``, one a module."""

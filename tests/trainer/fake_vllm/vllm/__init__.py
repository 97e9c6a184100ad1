"""Stands in for vLLM where its process is what is tested."""

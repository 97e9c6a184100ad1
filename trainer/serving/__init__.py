"""Who answers for a checkpoint: transformers in this process, a vLLM server that is started for it, or a URL."""

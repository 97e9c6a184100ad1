"""Files of other projects: MovingAI maps and scenarios, Hugging Face datasets."""

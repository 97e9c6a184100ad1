"""What the trainer costs beside what others would use in its place, measured side by side."""

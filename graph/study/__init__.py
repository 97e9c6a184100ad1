"""A study: arms x seeds of whole runs under equal budgets, and what may be said of their differences; docs/study.md."""

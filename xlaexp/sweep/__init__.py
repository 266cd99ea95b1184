"""Sweeps: the jobs of a multirun, what became of them, and what they came to."""

"""Hydra-configured experiments for PyTorch on XLA devices."""

__version__ = "0.1.0"

"""From overrides to a checked, plain config. Nothing here imports torch."""

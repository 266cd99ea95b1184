"""Callbacks: ``@CALLBACKS.register``; replica 0 has them. Given ``directory`` if they take it."""

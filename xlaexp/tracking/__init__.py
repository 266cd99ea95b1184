"""Trackers: ``@TRACKERS.register``; callbacks of replica 0, given ``directory`` if they take it."""

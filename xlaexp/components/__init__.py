"""Everything that a config can name."""

"""What a user's own package looks like, with components that do what tests need."""

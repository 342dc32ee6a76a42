"""The operators' surface, on a listener of its own: `routes` has them all in one table."""

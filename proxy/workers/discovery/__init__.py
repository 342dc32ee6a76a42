"""Where worker lists come from: `source` is the interface, each other file one source."""

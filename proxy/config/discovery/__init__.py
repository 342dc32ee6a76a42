"""`proxy.discovery`: one kind of source per file, `kinds` lists them, `reader` reads the list."""

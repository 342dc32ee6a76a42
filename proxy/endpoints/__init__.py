"""The public surface: one file per kind of route, every endpoint an ASGI application."""

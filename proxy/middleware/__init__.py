"""One raw-ASGI middleware per file; `proxy.app` puts them in order."""

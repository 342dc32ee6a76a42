"""The application under plain uvicorn in a process of its own: `python plain_server.py CONFIG`."""

import sys

import uvicorn

from proxy.app import Application
from proxy.config.load import load_settings

if __name__ == "__main__":
    settings = load_settings(sys.argv[1], overrides={}, environ={})
    uvicorn.run(
        Application(settings),
        host="127.0.0.1",
        port=settings.port,
        http="httptools",
        lifespan="on",
        ws="none",
    )

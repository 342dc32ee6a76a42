"""The proxy in a thread: under its own server, or as a plain ASGI application under uvicorn."""

import asyncio
import threading
from typing import Any, Literal

import uvicorn
import uvloop

from proxy.app import Application
from proxy.config.settings import Settings
from proxy.lifecycle.service import Service
from proxy.serve import make_server

Kind = Literal["own", "uvicorn"]
SECONDS = 20.0


class ServerThread:
    """Serves from `start` to `stop`; ``kind`` chooses the server."""

    def __init__(self, settings: Settings, kind: Kind) -> None:
        self._settings = settings
        self._kind = kind
        self.loop = uvloop.new_event_loop()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._server: Any = None
        self._app: Application | None = None
        self._thread = threading.Thread(target=self._run, name=f"proxy-{kind}", daemon=True)
        self.port = 0

    @property
    def service(self) -> Service:
        """What all requests share."""
        assert self._app is not None
        assert self._app.service is not None
        return self._app.service

    def start(self) -> "ServerThread":
        """Return when the server listens."""
        self._thread.start()
        assert self._started.wait(SECONDS), "the server did not start"
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        """Drain and end the thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._ask_to_stop)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the server did not stop"

    def _ask_to_stop(self) -> None:
        if self._kind == "own":
            self._server.stop()
        else:
            self._server.should_exit = True

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self.loop.close()

    async def _serve(self) -> None:
        if self._kind == "own":
            self._server = make_server(self._settings)
            self._app = self._server.config.app
        else:
            self._app = Application(self._settings)
            config = uvicorn.Config(
                self._app,
                host="127.0.0.1",
                port=0,
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                timeout_keep_alive=75,  # as ours: the client gives idle connections up after 5 s
            )
            self._server = uvicorn.Server(config)
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        if self._server.started:
            self.port = self._server.servers[0].sockets[0].getsockname()[1]
            self._started.set()
        await serving

"""A headless Chromium, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

PROGRAM = shutil.which("chromium")
SECONDS = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
)


class Chromium:
    """One browser with one page.

    Attributes:
        complaints: errors of scripts, violations of policies and failed requests so far.
    """

    def __init__(self, directory: Path) -> None:
        profile = directory / "profile"
        profile.mkdir()
        self._log = (directory / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [str(PROGRAM), *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self.complaints: list[str] = []
        self._number = 0
        self._open = ExitStack()
        try:
            address = _page_socket(profile / "DevToolsActivePort")
            self._socket = self._open.enter_context(connect(address, max_size=None))
            for domain in ("Page", "Runtime", "Log"):
                self.command(f"{domain}.enable")
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End the browser."""
        self._end()

    def _end(self) -> None:
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._log.close()

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are looked through for complaints."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["params"]["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.complaints.append(event["params"]["entry"]["text"])

    def open(self, url: str) -> None:
        """Go to a page."""
        assert "errorText" not in self.command("Page.navigate", url=url)

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """Choose the size of the window in pixels, and `light` or `dark`."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Wait until an expression has a true value, and return that."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"{script} is {value!r}; {self.complaints}"
            time.sleep(0.05)
        return value

    def press_escape(self) -> None:
        """Press the key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent", type=kind, key="Escape", code="Escape", windowsVirtualKeyCode=27
            )

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])


def _page_socket(port_file: Path) -> str:
    """The WebSocket address of the first page; the browser writes its port when it is ready."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            port = int(port_file.read_text().splitlines()[0])
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            return str(pages[0]["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            assert time.monotonic() < deadline, "Chromium does not start"
            time.sleep(0.05)

"""The one exception of the configuration: what is wrong, where, and with which value."""

from __future__ import annotations

EXIT_CODE = 2
"""Exit status of the command line for a configuration it cannot use (as argparse uses for its own errors)."""


class ConfigError(Exception):
    """A configuration that cannot be used.

    `origin` is the file, environment variable or command line the value came from, `key` the dotted path
    (`context_servers.urls[1]`), `value` the offending value as it is shown (secrets are masked), `problem`
    one sentence. `str(error)` joins them into one line, ready to be printed without a traceback.
    """

    exit_code = EXIT_CODE

    def __init__(self, problem: str, *, origin: str = "", key: str = "", value: str | None = None) -> None:
        self.problem = problem
        self.origin = origin
        self.key = key
        self.value = value
        subject = key if value is None else f"{key} = {value}"
        super().__init__(": ".join(part for part in (origin, subject, problem) if part))

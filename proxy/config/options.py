"""Command line options that set configuration keys: those of `trtllm-serve disaggregated` and some more."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from proxy.config.sources import COMMAND_LINE, WARNINGS_KEY

# Option -> the keys it sets. Upstream's request time-out is one total for each worker call, streams included;
# here each phase of a request has its own.
_KEYS: dict[str, tuple[str, ...]] = {
    "host": ("hostname",),
    "port": ("port",),
    "workers": ("num_workers",),
    "server_start_timeout": ("server_start_timeout",),
    "request_timeout": ("timeout_context", "timeout_first_byte", "timeout_idle"),
    "log_level": ("log_level",),
    "metadata_server_config_file": ("metadata_server",),
}


class _OldConfigOption(argparse.Action):
    """Stores the path like `--config` and remembers that the old name was used."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.config = values
        namespace.config_file = option_string


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Add every option of `trtllm-serve disaggregated`, under its names, and `--host`, `--port` and `--workers`.

    After parsing, `args.config` is the path of the YAML file or None; `overrides_from` reads the rest.
    """
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", help="YAML file of trtllm-serve disaggregated")
    add("--config_file", metavar="FILE", action=_OldConfigOption, help=argparse.SUPPRESS)
    add("--host", help="address to listen on (key hostname; default localhost)")
    add("--port", type=int, help="port to listen on (default 8000; 0: any free port)")
    add("--workers", type=int, metavar="N", help="processes that serve the port (key num_workers; default 1)")
    add(
        "-t",
        "--server_start_timeout",
        type=float,
        metavar="SECONDS",
        help="time for the workers to become healthy at start (default 180)",
    )
    add(
        "-r",
        "--request_timeout",
        type=float,
        metavar="SECONDS",
        help="sets proxy.timeout_context, proxy.timeout_first_byte and proxy.timeout_idle (default 180)",
    )
    add("-l", "--log_level", metavar="LEVEL", help="debug, info, warning, error or critical (default info)")
    add(
        "-m",
        "--metadata_server_config_file",
        metavar="FILE",
        help="YAML file that names the etcd in which the workers register (key proxy.metadata_server)",
    )
    add("--metrics-log-interval", type=int, metavar="N", help=argparse.SUPPRESS)


def overrides_from(args: argparse.Namespace) -> dict[str, object]:
    """Return the keys that the command line sets, for `load_settings(..., overrides=...)`.

    The entry `warnings` lists options that are accepted without effect or under an old name.
    """
    overrides: dict[str, object] = {}
    for option, keys in _KEYS.items():
        value: Any = getattr(args, option)
        if value is not None:
            overrides |= dict.fromkeys(keys, value)
    warnings = []
    if args.config_file is not None:
        warnings.append(f"{COMMAND_LINE}: --config_file is the old name of --config")
    if args.metrics_log_interval is not None:
        warnings.append(f"{COMMAND_LINE}: --metrics-log-interval has no effect, as upstream")
    if warnings:
        overrides[WARNINGS_KEY] = tuple(warnings)
    return overrides

"""Programs run as in a container, by util-linux: no engine is needed."""

import os
import shutil
import subprocess
from pathlib import Path

# A root that cannot be written to, processes counted from 1, and another user without any right but to read: the
# interpreter of the tests may lie where only root reads.
_AS_IN_A_CONTAINER = (
    "set -e; user=$1 group=$2; shift 2; mount -o remount,bind,ro /; "
    'exec setpriv --reuid "$user" --regid "$group" --clear-groups --inh-caps=-all,+dac_read_search '
    '--ambient-caps=-all,+dac_read_search --bounding-set=-all,+dac_read_search --no-new-privs -- "$@"'
)


def contained(user: str) -> tuple[str, ...]:
    """What to put before a command to run it as process 1 of a container, as `UID:GID`."""
    namespaces = ("--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
    return ("unshare", *namespaces, "sh", "-c", _AS_IN_A_CONTAINER, "sh", *user.split(":"))


def why_no_containers() -> str | None:
    """None where `contained` works."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is missing (Debian package util-linux)"
    tried = subprocess.run([*contained("65532:65532"), "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"namespaces cannot be made here: {tried.stderr.strip()}"


def first_process(unshare: int) -> int:
    """The process 1 below an `unshare` that has this number, by its number outside."""
    (child,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return int(child)

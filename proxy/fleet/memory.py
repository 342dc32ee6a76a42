"""Memory that a supervisor and its processes share: a memfd, handed on by inheritance.

(`multiprocessing.SharedMemory` is unlinked by the resource tracker of whichever process dies first.)
"""

from __future__ import annotations

import fcntl
import mmap
import os


def create_memory(name: str, size: int) -> int:
    """Create zeroed memory of `size` bytes and return its descriptor; its size is fixed for good."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


def map_memory(descriptor: int) -> mmap.mmap:
    """Map all of it, to be read and written; the descriptor may be closed afterwards."""
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)


def resident_bytes() -> int:
    """Memory of this process that is in RAM (`/proc/self/statm`, proc(5)), bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE

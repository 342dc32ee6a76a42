"""The generations of workers; `fields/accepted.py` says what each of them takes."""

from enum import StrEnum


class WorkerVersion(StrEnum):
    """Generations of TensorRT-LLM workers that differ on the wire."""

    OLD = "old"
    """Late 2025 to spring 2026: 1.2 and early 1.3.0 release candidates."""
    JUL = "jul"
    """July and August 2026, about 1.3.0rc24."""
    NEW = "new"
    """Since August 2026."""

"""What a version of the workers takes beyond the request fields (see `fields/accepted.py` for those)."""

from enum import StrEnum


class WorkerVersion(StrEnum):
    """Generations of TensorRT-LLM workers that differ on the wire."""

    OLD = "old"
    """Late 2025 to spring 2026: 1.2 and early 1.3.0 release candidates."""
    JUL = "jul"
    """July and August 2026, about 1.3.0rc24."""
    NEW = "new"
    """Since August 2026."""

    @property
    def sends_schedule_style(self) -> bool:
        """Whether the context leg may carry `schedule_style`; OLD workers refuse it."""
        return self is not WorkerVersion.OLD

    @property
    def takes_base64_ids(self) -> bool:
        """Whether `return_prompt_token_ids_b64` is known (TRT#15698)."""
        return self is not WorkerVersion.OLD

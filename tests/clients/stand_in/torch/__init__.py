"""As much of torch as GuideLLM needs to go through its requests in order: torch and CUDA would take gigabytes."""

from . import utils as utils


class Generator:
    def manual_seed(self, seed: int) -> "Generator":
        return self

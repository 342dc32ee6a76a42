"""A proxy in front of TensorRT-LLM context (prefill) and generation (decode) workers."""

import os
from importlib.metadata import version

# numpy's linear algebra would start a thread per core in each process of a fleet, and nothing here multiplies
# matrices. It looks when it is imported, which is after this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__: str = version("disagg-proxy")

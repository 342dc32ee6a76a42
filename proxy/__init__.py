"""A proxy in front of TensorRT-LLM context (prefill) and generation (decode) workers."""

from importlib.metadata import version

__version__: str = version("disagg-proxy")

"""Simulated TensorRT-LLM workers: real sockets and the real wire format, made-up tokens."""

from proxy.sim.answer import Answer, ToolCall, expected_answers, expected_text
from proxy.sim.cluster import SimCluster, ThreadedSimCluster
from proxy.sim.engine import Speed
from proxy.sim.faults import Fault
from proxy.sim.kv import KvRegistry
from proxy.sim.recorded import RecordedRequest
from proxy.sim.settings import WorkerSettings
from proxy.sim.tokens import prompt_token_ids
from proxy.sim.worker import SimWorker

__all__ = [
    "Answer",
    "Fault",
    "KvRegistry",
    "RecordedRequest",
    "SimCluster",
    "SimWorker",
    "Speed",
    "ThreadedSimCluster",
    "ToolCall",
    "WorkerSettings",
    "expected_answers",
    "expected_text",
    "prompt_token_ids",
]

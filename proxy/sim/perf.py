"""Performance metrics of a request: in response headers, in an event after [DONE], and in ``/perf_metrics``."""

import time
from typing import Any

import msgspec

from proxy.sim.inference import Inference

ASK_HEADER = b"x-trtllm-return-metrics"


def metrics_of(inference: Inference, offset: float) -> dict[str, str]:
    """Header names and values; times in milliseconds, time stamps in seconds of the steady clock plus ``offset``."""
    end = time.monotonic()
    first = inference.first_token or end
    phases = (
        ("server_queue", 0.0),
        ("server_ttft", first - inference.arrival),
        ("server_e2e", end - inference.arrival),
        ("server_kv_transfer", inference.kv_transfer_seconds),
    )
    start_end = f"server-start;ts={inference.arrival + offset:.6f}, server-end;ts={end + offset:.6f}"
    forward = f"forward;dur={(first - inference.arrival) * 1000:.3f}"
    metrics = {
        "Server-Timing": ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in phases),
        "X-TRTLLM-Start-End-Time": start_end,
        "X-TRTLLM-Step-Metrics": f"server-step-0-{forward}",
    }
    if inference.leg != "generation":
        metrics["X-TRTLLM-Ctx-Chunk-Metrics"] = f"server-ctx-chunk-0-{forward}"
    return metrics


def metrics_headers(inference: Inference, offset: float) -> list[tuple[bytes, bytes]]:
    """The metrics as response headers."""
    return [(name.lower().encode(), value.encode()) for name, value in metrics_of(inference, offset).items()]


def metrics_event(inference: Inference, offset: float) -> bytes:
    """The metrics as the event that follows ``[DONE]``."""
    return (
        b"event: trtllm.perf_metrics\ndata: " + msgspec.json.encode(metrics_of(inference, offset)) + b"\n\n"
    )


def nemo_stamps(inference: Inference) -> dict[str, int]:
    """What context workers of NeMo-RL add to their answers (NVIDIA-NeMo/RL#4095): microseconds since 1970, counts."""
    passed = int((time.monotonic() - inference.arrival) * 1e6)
    now = time.time_ns() // 1000
    arrival = now - passed
    return {
        "nemo_ctx_arrival_ts_us": arrival,
        "nemo_ctx_queued_ts_us": arrival,
        "nemo_ctx_first_scheduled_ts_us": arrival,
        "nemo_ctx_done_ts_us": now,
        "nemo_ctx_computed_tokens": inference.prompt_tokens,
        "nemo_ctx_first_begin": 0,
        "nemo_ctx_num_chunks": 1,
    }


def metrics_record(number: int, inference: Inference, offset: float) -> dict[str, Any]:
    """One entry of ``GET /perf_metrics``."""
    record: dict[str, Any] = {"request_id": number}
    context_id = inference.params.get("ctx_request_id") or inference.params.get("disagg_request_id")
    if context_id is not None:
        record["ctx_request_id"] = context_id
    arrival = inference.arrival + offset
    end = time.monotonic() + offset
    first = inference.first_token + offset if inference.first_token else end
    record["perf_metrics"] = {
        "first_iter": 1,
        "last_iter": 1,
        "timing_metrics": {
            "server_arrival_time": arrival,
            "arrival_time": arrival,
            "first_scheduled_time": arrival,
            "first_token_time": first,
            "server_first_token_time": first,
            "last_token_time": end,
        },
        "kv_cache_metrics": {
            "num_total_allocated_blocks": 0,
            "num_new_allocated_blocks": 0,
            "num_reused_blocks": 0,
            "num_missed_blocks": 0,
        },
    }
    return record

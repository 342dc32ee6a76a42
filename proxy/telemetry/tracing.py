"""Spans of requests, exported as OTLP over HTTP. Imported only when `otlp_config` names an endpoint.

A request has one span from its arrival to the end of its answer, and one each for the queue, the context leg and the
generation leg. The legs carry the request's span as their parent in `traceparent` (W3C Trace Context), so that the
workers' spans hang below it. The spans of phases are made when the request is over, of the times in its record.

The exporter, the sampler and the resource obey the OTEL_* variables of the OpenTelemetry specification.
"""

from __future__ import annotations

import os
import threading
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue
    from starlette.types import Scope

    from proxy.lifecycle.headers import Headers
    from proxy.lifecycle.record import RequestRecord
    from proxy.workers.worker import Worker

SPAN = "disagg.span"
"""Where the span of a request is in the ASGI scope."""

_PARENT = b"traceparent"
_CARRIED = (_PARENT, b"tracestate")
_CLOSING_SECONDS = 5.0


class Tracing:
    """One per process.

    Args:
        endpoint: url of the collector.
    """

    def __init__(self, endpoint: str) -> None:
        environment = os.environ
        named = environment.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create({} if named else {SERVICE_NAME: "disagg-proxy"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("disagg-proxy", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, scope: Scope, received: float) -> None:
        """Begin the span of a request and put it into the headers that go to the workers.

        Args:
            scope: of the request; its headers are replaced.
            received: `perf_counter` seconds.
        """
        headers: Headers = scope["headers"]
        carrier = {str(name, "ascii"): str(value, "latin-1") for name, value in headers if name in _CARRIED}
        span = self._tracer.start_span(
            "request",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=_Clock().nanoseconds(received),
        )
        context = span.get_span_context()
        if not context.is_valid:  # OTEL_SDK_DISABLED
            return
        parent = b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags)
        scope["headers"] = [header for header in headers if header[0] != _PARENT] + [(_PARENT, parent)]
        scope[SPAN] = span

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """End the span of a finished request, if it has one."""
        span: Span | None = scope.get(SPAN)
        if span is None or not span.is_recording():
            return
        clock = _Clock()
        span.set_attributes(_attributes(record, scope))
        if record.outcome == "error":
            span.set_status(Status(StatusCode.ERROR, record.error.code if record.error is not None else None))
        parent = set_span_in_context(span)
        context, generation = record.context_worker, record.generation_worker
        for name, kind, start, end, attributes in (
            ("queue", SpanKind.INTERNAL, record.queue_began, record.queue_ended, {}),
            ("context leg", SpanKind.CLIENT, record.context_sent, record.context_done, _of_leg(context)),
            ("generation leg", SpanKind.CLIENT, record.generation_sent, record.ended, _of_leg(generation)),
        ):
            if start:
                child = self._tracer.start_span(
                    name,
                    context=parent,
                    kind=kind,
                    attributes=attributes,
                    start_time=clock.nanoseconds(start),
                )
                # A leg without an answer has ended with the request, or with the next attempt.
                child.end(clock.nanoseconds(end if end >= start else record.ended))
        span.end(clock.nanoseconds(record.ended))

    def close(self) -> None:
        """Export what waits, for some seconds at most; blocks."""
        # The exporter tries again and again when the collector does not answer.
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(_CLOSING_SECONDS)


class _Clock:
    """Converts `perf_counter` seconds of now and of the near past to the time of day."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time_ns() - perf_counter_ns()

    def nanoseconds(self, seconds: float) -> int:
        return int(seconds * 1e9) + self._offset


def _attributes(record: RequestRecord, scope: Scope) -> dict[str, AttributeValue]:
    """Names of the OpenTelemetry semantic conventions where there are any."""
    attributes: dict[str, AttributeValue] = {
        "http.request.method": scope["method"],
        "http.route": record.route,
        "http.response.status_code": record.status,
        "gen_ai.request.model": record.model,
        "disagg_proxy.request_id": record.request_id,
        "disagg_proxy.outcome": record.outcome,
        "disagg_proxy.stream": record.stream,
        "disagg_proxy.retries": record.retries,
    }
    if record.disagg_request_id:
        attributes["disagg_proxy.disagg_request_id"] = record.disagg_request_id
    if record.error is not None:
        attributes["error.type"] = record.error.code
    return attributes


def _of_leg(worker: Worker | None) -> dict[str, AttributeValue]:
    return {} if worker is None else {"disagg_proxy.worker": worker.address.text}

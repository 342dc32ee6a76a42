"""Types of single values of the configuration; messages say their bounds (`proxy.config.values.describe`)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
PerWorker = Annotated[int, Meta(ge=0)] | Literal["auto"]
Bytes = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]
# Six bits of each disagg_request_id number the process (proxy.wire.ids).
Processes = Annotated[int, Meta(ge=1, le=64)]

"""Answers to requests that the server refuses before the application sees them."""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from proxy.errors import ClientFault


class Refusal(ClientFault):
    """A request that is broken or too large at the level of HTTP."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message, code=code)
        self.status = status

    @classmethod
    def body_too_large(cls, limit: int) -> "Refusal":
        """413 for a body beyond the limit, bytes."""
        return cls(413, f"the request body exceeds {limit} bytes", "request_too_large")

    @property
    def status_line(self) -> bytes:
        """The HTTP status line."""
        return STATUS_LINE[self.status]

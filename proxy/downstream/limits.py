"""What a client connection may do, and how long it is served."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Bytes and seconds; a time of 0 means no limit.

    Attributes:
        max_header_bytes: request line and header fields together.
        max_body_bytes: request body.
        header_timeout: for a whole head, from the connection's or the first byte's arrival.
        client_stall_timeout: between two pieces of a body, and for a client that does not read its answer.
        coalesce_seconds: how long pieces of a stream may wait for more while the loop is busy; 0 = never.
        close_timeout: for a client to take the last bytes of an answer after which the connection closes.
    """

    max_header_bytes: int = 64 * 1024
    max_body_bytes: int = 128 * 1024 * 1024
    header_timeout: float = 15.0
    client_stall_timeout: float = 180.0
    coalesce_seconds: float = 0.0
    close_timeout: float = 5.0

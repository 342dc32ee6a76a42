"""What can be wrong with bytes. The callers know whose bytes they were and choose the HTTP status.

WireError
├── MalformedJSON      not the JSON that was expected
├── InvalidField       a member has a wrong type or value (client side); names the member
├── BrokenHandOff      a context answer that cannot be handed to a generation worker
└── BrokenFraming      bytes that are not valid HTTP/1.1 framing, or an event without an end
"""


class WireError(ValueError):
    """Base of all errors about the content of bytes."""


class MalformedJSON(WireError):
    """The bytes are not JSON of the expected shape."""


class InvalidField(WireError):
    """A request member has a wrong type or a value that is not served."""

    def __init__(self, param: str, message: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.message = message
        self.code = code


class BrokenHandOff(WireError):
    """The context worker's answer lacks what a generation worker needs."""


class BrokenFraming(WireError):
    """The peer's framing, of HTTP/1.1 or of events, is invalid."""

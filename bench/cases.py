"""The cases: what a client sends and what the workers answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of request.

    body_bytes: size of the client's chat body; token_ids: prompt ids the context worker returns;
    chunks: content chunks of the streamed answer (0: one JSON answer); interval_ms: gap between chunks
    (0: all in one burst); connections: concurrent clients in the closed loop; streams: streams held open
    (0: none); open_rate: requests per second of the open loop (0: not run), chosen below what the slowest
    contestant can do so that all are compared at the same rate.
    """

    name: str
    title: str
    body_bytes: int
    token_ids: int
    chunks: int = 0
    interval_ms: float = 0.0
    connections: int = 8
    streams: int = 0
    open_rate: float = 0.0

    @property
    def streamed(self) -> bool:
        return self.chunks > 0 or self.streams > 0

    @property
    def paced(self) -> bool:
        return self.interval_ms > 0


LONG, SHORT = 160_000, 1_000

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("S1", "160 KB body, 40,000 ids, one JSON answer", LONG, 40_000, open_rate=25),
        Case("S2", "160 KB body, 40,000 ids, 200 chunks in a burst", LONG, 40_000, chunks=200, open_rate=25),
        Case(
            "S3",
            "1 KB body, 200 ids, 200 chunks in a burst",
            SHORT,
            200,
            chunks=200,
            connections=16,
            open_rate=50,
        ),
        Case("S4", "1 KB body, 200 ids, one JSON answer", SHORT, 200, connections=16, open_rate=150),
        Case(
            "S3p-32",
            "S3 at 5 ms per chunk, 32 clients",
            SHORT,
            200,
            chunks=200,
            interval_ms=5,
            connections=32,
        ),
        Case(
            "S3p-256",
            "S3 at 5 ms per chunk, 256 clients",
            SHORT,
            200,
            chunks=200,
            interval_ms=5,
            connections=256,
        ),
        Case(
            "S2p-32",
            "S2 at 5 ms per chunk, 32 clients",
            LONG,
            40_000,
            chunks=200,
            interval_ms=5,
            connections=32,
        ),
        Case(
            "S2p-256",
            "S2 at 5 ms per chunk, 256 clients",
            LONG,
            40_000,
            chunks=200,
            interval_ms=5,
            connections=256,
        ),
        Case("S5", "1 MB body, 100,000 ids, one JSON answer", 1_000_000, 100_000, connections=4, open_rate=5),
        Case(
            "S6",
            "open streams, one chunk a second each, opened with S1 bodies",
            LONG,
            40_000,
            interval_ms=1000,
            connections=8,
            streams=4096,
        ),
    )
}


def chosen(names: str) -> list[Case]:
    """Cases of a comma-separated list; `all` stands for every one, `S3p` for both S3p-32 and S3p-256."""
    if names == "all":
        return list(CASES.values())
    found: list[Case] = []
    for name in names.split(","):
        matches = [case for key, case in CASES.items() if key == name or key.startswith(name + "-")]
        if not matches:
            raise SystemExit(f"no case named {name!r}; known: {', '.join(CASES)}")
        found += matches
    return found

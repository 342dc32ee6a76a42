"""TLS in front of a plain TCP server, for simulated workers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def tls_front(address: str, context: ssl.SSLContext) -> AsyncIterator[str]:
    """Listen with TLS and pass everything on to ``host:port``; yields the own ``https://`` address."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(own := asyncio.current_task())  # type: ignore[arg-type]
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
        finally:
            for each in (writer, far_writer):
                each.transport.abort()
            tasks.discard(own)  # type: ignore[arg-type]

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

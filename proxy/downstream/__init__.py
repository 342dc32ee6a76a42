"""The client's side: uvicorn with our own protocol class (`protocol`, `cycle`, `sink`) and server class (`server`).

`protocol` reads one request at a time from a connection, `cycle` is one request and its answer, `sink` takes a
worker's answer straight to the client's transport. `client` is what the rest of the program knows of a client: with
these classes it uses the extension `disagg.relay`, under any other ASGI server plain `receive` and `send`.
"""

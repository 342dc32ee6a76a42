"""Where worker lists come from: `source` is the interface, `table` lists the sources, each other file is one source or
what follows them: `follower` one source, `discovery` all of them.

To add a source: its settings become a struct in a file of its own under `proxy.config.discovery` and a row of `KINDS`
there (and of `proxy.config.reference`), its class a file here and a row of `SOURCES`. Everything else (back-off, logs,
metrics, /admin/status, `disagg-proxy check`, several processes) comes by itself. A source that no configuration entry
describes gives the whole fleet its list by `Member.broadcast(DISCOVERED, ...)`, see `proxy.fleet.discovered`.
"""

"""Pure bytes in, bytes out: nothing here does IO or knows the time.

`members`     lazy JSON objects, `spans` exact places of members in the source text
`request`     what the proxy reads of a client's request; `fields/` what it does with the rest
`handoff`     the context worker's answer, `token_ids` find-and-cut, `legs` the bodies of both legs
`history`     cutting the message history, `signing` the internal request signature
`answers`     removing hand-off members, `finished` answers that the context worker completed
`sse`, `chunks`, `ids`   server-sent events, HTTP/1.1 chunk frames, request ids
"""

"""HTTP/1.1 client to the workers: `head` of an answer, `connection`, `pool`, `connect`."""

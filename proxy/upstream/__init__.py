"""HTTP/1.1 client to the workers: `connection`, `head` and body of an `answer`, `pool`, `access`."""

"""haproxy as a reverse proxy of one leg: one thread, keep-alive to the worker, each piece sent at once."""


def configuration(port: int, upstream: int) -> str:
    """haproxy.cfg; without `http-no-delay` haproxy gathers small chunks before it sends them."""
    return f"""\
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  option http-no-delay
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend generation
backend generation
  server worker 127.0.0.1:{upstream} maxconn 9000
"""

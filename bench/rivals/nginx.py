"""nginx as a reverse proxy of one leg: one worker process, keep-alive to the worker, no buffering."""

from pathlib import Path


def configuration(port: int, upstream: int, folder: Path) -> str:
    """nginx.conf; bodies up to 2 MB stay in memory, answers go out as they come."""
    return f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
events {{ worker_connections 19000; multi_accept on; }}
http {{
  access_log off;
  error_log {folder}/nginx.log crit;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  tcp_nodelay on;
  keepalive_requests 10000000;
  keepalive_timeout 75s;
  client_max_body_size 0;
  client_body_buffer_size 2m;
  upstream generation {{
    server 127.0.0.1:{upstream};
    keepalive 1024;
    keepalive_requests 10000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://generation;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""

"""Serves the current folder over HTTP on the listener that it is started with
(LISTEN_FDS, as systemd does it)."""

import functools
import http.server
import os
import socket
import sys

assert os.environ["LISTEN_FDS"] == "1" and os.environ["LISTEN_PID"] == str(os.getpid())
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(None, handler, bind_and_activate=False)
server.socket = socket.socket(fileno=3)
server.server_name, server.server_port = server.socket.getsockname()
server.serve_forever()

"""Speaks plain TCP to a server in DDPMODE: outsider.py ADDRESS PORT

It has to be reset without an octet, framed or not. Exit status 1 when anything else happens.
"""

import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    try:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: outsider\r\n\r\n")
        octets = connection.recv(100)
    except (ConnectionResetError, BrokenPipeError):
        print("reset")
        sys.exit(0)
    except TimeoutError:
        sys.exit("left waiting")
sys.exit(f"was answered: {octets!r}")

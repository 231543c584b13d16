#!/usr/bin/env python3
"""The same two programs as in c/put.c, which says what they do: each can be the
other's client or server.

    rddp run -- ./put.py server PORT FILE
    rddp run -- ./put.py client ADDRESS PORT FILE

The module `rddp` is in ../../python, and in the package python3-rddp.
"""

import socket
import struct
import sys

import rddp

MEMORY, PIECE = 1 << 24, 1 << 20
ADVERT = struct.Struct("!QII")  # address, STag, length
LENGTH = struct.Struct("!I")


def serve(port, path):
    listener = rddp.raw_socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(1)
    print("listening", flush=True)
    queue = rddp.Queue()
    endpoint = rddp.Endpoint(listener.accept()[0], queue)
    memory = rddp.Memory(MEMORY, rddp.LOCAL_WRITE | rddp.REMOTE_WRITE | rddp.REMOTE_READ)
    answer = rddp.Memory(LENGTH.size, rddp.LOCAL_WRITE)
    endpoint.receive(answer)  # before the client can send
    endpoint.begin()
    queue.expect(rddp.CONNECTED)
    endpoint.send(ADVERT.pack(memory.to, memory.stag, memory.length))
    queue.expect(rddp.SEND)
    queue.expect(rddp.RECEIVE)
    length, = LENGTH.unpack(answer.octets)
    with open(path, "wb") as file:
        file.write(memory.octets[:length])
    queue.expect(rddp.CLOSED)


def put(host, port, path):
    with open(path, "rb") as file:
        octets = file.read(MEMORY)
    queue, sock = rddp.Queue(), rddp.raw_socket()
    endpoint = rddp.Endpoint(sock, queue)
    inbox = rddp.Memory(ADVERT.size, rddp.LOCAL_WRITE)
    endpoint.receive(inbox)
    sock.connect((host, port))
    queue.expect(rddp.CONNECTED)
    queue.expect(rddp.RECEIVE)
    to, stag, _ = ADVERT.unpack(inbox.octets)
    source, sink = rddp.Memory(MEMORY, 0), rddp.Memory(MEMORY, rddp.LOCAL_WRITE)
    source.octets[:len(octets)] = octets
    for at in range(0, len(octets), PIECE):
        length = min(PIECE, len(octets) - at)
        # A Read is done after the Writes before it: RFC 5040, section 5.5.
        endpoint.write(source.piece(at, length), stag, to + at, flags=rddp.QUIET)
        endpoint.read(sink.piece(at, length), stag, to + at)
        queue.expect(rddp.READ)
    if sink.octets[:len(octets)] != octets:
        sys.exit("put.py: what was read back is something else")
    endpoint.send(LENGTH.pack(len(octets)))
    queue.expect(rddp.SEND)
    endpoint.disconnect()
    queue.expect(rddp.CLOSED)
    print(f"{len(octets)} octets put, read back and compared")


if sys.argv[1:2] == ["server"] and len(sys.argv) == 4:
    serve(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1:2] == ["client"] and len(sys.argv) == 5:
    put(sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    sys.exit(f"usage: {sys.argv[0]} server PORT FILE | client ADDRESS PORT FILE")

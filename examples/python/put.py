#!/usr/bin/env python3
"""The same two programs as in c/put.c, which says what they do: each can be the
other's client or server.

    rddp run -- ./put.py server PORT FILE
    rddp run -- ./put.py client ADDRESS PORT FILE

The library is in the process already, where `rddp run` has put it; so the calls of rddp/raw.h are
found by their names, and the sockets of Python's own module are in raw mode when they are told to
be. The event queue is a descriptor, for `select`.
"""

import ctypes
import os
import select
import socket
import struct
import sys

SOL_DDP, DDPMODE, DDPMODE_RAW = 0x4444, 1, 2
RECEIVE, SEND, WRITE, READ, CONNECTED, CLOSED = 1, 2, 4, 7, 101, 102
LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE = 1, 2, 4
INLINE, QUIET = 1, 4
MEMORY, PIECE, PATIENCE = 1 << 24, 1 << 20, 10


class Event(ctypes.Structure):
    _fields_ = [("endpoint", ctypes.c_uint64), ("tag", ctypes.c_uint64), ("kind", ctypes.c_uint32),
                ("status", ctypes.c_int32), ("fd", ctypes.c_int32), ("length", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("stag", ctypes.c_uint32), ("immediate", ctypes.c_uint8 * 8),
                ("terminate", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Endpoint(ctypes.Structure):
    _fields_ = [("queue", ctypes.c_int32), ("domain", ctypes.c_int32), ("tag", ctypes.c_uint64),
                ("max_send", ctypes.c_uint32), ("max_recv", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("timeout", ctypes.c_uint32), ("receives", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


class Sge(ctypes.Structure):
    _fields_ = [("to", ctypes.c_uint64), ("length", ctypes.c_uint32), ("stag", ctypes.c_uint32)]


class Work(ctypes.Structure):
    _fields_ = [("tag", ctypes.c_uint64), ("op", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("list", ctypes.POINTER(Sge)), ("count", ctypes.c_uint32), ("stag", ctypes.c_uint32),
                ("to", ctypes.c_uint64), ("args", ctypes.c_uint64 * 4)]


library = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """Calls a function of the library; its errno becomes an exception."""
    function = getattr(library, name, None)
    if function is None:
        sys.exit("put.py: no librddp_sockets.so here: start it with `rddp run`")
    result = function(*args)
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{name}: {os.strerror(errno)}")
    return result


class Memory:
    """Registered memory, allocated here."""

    def __init__(self, length, access):
        self.octets = ctypes.create_string_buffer(length)
        stag = ctypes.c_uint32()
        call("ddp_register", 0, self.octets, ctypes.c_size_t(length), access, ctypes.byref(stag))
        self.stag, self.to = stag.value, ctypes.addressof(self.octets)

    def piece(self, at, length):
        return Sge(self.to + at, length, self.stag)


class Connection:
    """A socket in raw mode, and the queue of its events."""

    def __init__(self, sock):
        self.sock, self.queue = sock, call("ddp_queue", 0)
        call("ddp_attach", sock.fileno(), ctypes.byref(Endpoint(queue=self.queue)))

    def post(self, *works):
        call("ddp_post", self.sock.fileno(), (Work * len(works))(*works), len(works))

    def receive(self, piece):
        self.post(Work(op=RECEIVE, list=ctypes.pointer(piece), count=1))

    def send(self, octets):
        place = ctypes.create_string_buffer(octets, len(octets))
        piece = Sge(ctypes.addressof(place), len(octets), 0)
        self.post(Work(op=SEND, flags=INLINE, list=ctypes.pointer(piece), count=1))
        self.expect(SEND)

    def expect(self, kind):
        """Returns the next event, which has to be a success of this kind."""
        if not select.select([self.queue], [], [], PATIENCE)[0]:
            sys.exit("put.py: no event came")
        event = Event()
        call("ddp_events", self.queue, ctypes.byref(event), 1, 0)
        if (event.kind, event.status) != (kind, 0):
            sys.exit(f"put.py: event {event.kind}: {os.strerror(event.status)}, Terminate {event.terminate:#06x}")


def raw_socket():
    sock = socket.socket()
    sock.setsockopt(SOL_DDP, DDPMODE, DDPMODE_RAW)
    return sock


def serve(port, path):
    listener = raw_socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(1)
    print("listening", flush=True)
    connection = Connection(listener.accept()[0])
    memory = Memory(MEMORY, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
    answer = Memory(4, LOCAL_WRITE)
    connection.receive(answer.piece(0, 4))  # before the client can send
    call("ddp_begin", connection.sock.fileno())
    connection.expect(CONNECTED)
    connection.send(struct.pack("!QII", memory.to, memory.stag, MEMORY))
    connection.expect(RECEIVE)
    length, = struct.unpack("!I", answer.octets.raw)
    with open(path, "wb") as file:
        file.write(memory.octets.raw[:length])
    connection.expect(CLOSED)


def put(host, port, path):
    with open(path, "rb") as file:
        octets = file.read(MEMORY)
    connection = Connection(raw_socket())
    inbox = Memory(16, LOCAL_WRITE)
    connection.receive(inbox.piece(0, 16))
    connection.sock.connect((host, port))
    connection.expect(CONNECTED)
    connection.expect(RECEIVE)
    to, stag, _ = struct.unpack("!QII", inbox.octets.raw)
    source, sink = Memory(MEMORY, 0), Memory(MEMORY, LOCAL_WRITE)
    ctypes.memmove(source.octets, octets, len(octets))
    for at in range(0, len(octets), PIECE):
        length = min(PIECE, len(octets) - at)
        here, there = source.piece(at, length), sink.piece(at, length)
        # A Read is done after the Writes before it: RFC 5040, section 5.5.
        connection.post(Work(op=WRITE, flags=QUIET, list=ctypes.pointer(here), count=1, stag=stag, to=to + at),
                        Work(op=READ, list=ctypes.pointer(there), count=1, stag=stag, to=to + at))
        connection.expect(READ)
    if sink.octets.raw[:len(octets)] != octets:
        sys.exit("put.py: what was read back is something else")
    connection.send(struct.pack("!I", len(octets)))
    call("ddp_disconnect", connection.sock.fileno(), 0)
    connection.expect(CLOSED)
    print(f"{len(octets)} octets put, read back and compared")


if sys.argv[1:2] == ["server"] and len(sys.argv) == 4:
    serve(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1:2] == ["client"] and len(sys.argv) == 5:
    put(sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    sys.exit(f"usage: {sys.argv[0]} server PORT FILE | client ADDRESS PORT FILE")

"""Echoes over TCP: echo.py serve KIND ADDRESS PORT, echo.py ask KIND ADDRESS PORT CONNECTIONS
MEBIOCTETS

KIND is asyncio, selectors or threads, or, to serve, programs. Each connection sends as many octets
in pieces of random lengths while it reads what comes back, then closes its own direction and reads
to the end; a hash of all of it is printed for each. With MARKERS in the environment each end asks
its peer for markers (RFC 5044 section 4.3), where it is under rddp.
"""

import asyncio
import contextlib
import hashlib
import os
import random
import selectors
import socket
import socketserver
import subprocess
import sys
import threading

LARGEST = 100_000
# As in rddp/ddp.h.
SOL_DDP, DDP_MARKERS = 0x4444, 4


class Marked(socket.socket):
    """A socket that asks for markers, if it is no plain one; those that it accepts do so, too."""

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        super().__init__(family, type, proto, fileno)
        if fileno is None:
            with contextlib.suppress(OSError):
                self.setsockopt(SOL_DDP, DDP_MARKERS, 1)


class Pieces:
    """The octets that a connection sends, in pieces, and a check of those that it receives."""

    def __init__(self, number, octets):
        self.numbers = random.Random(number)
        self.left = octets
        self.came = hashlib.sha256()
        self.count = 0

    def next(self):
        """Returns the next piece; none at the end."""
        piece = self.numbers.randbytes(min(self.left, self.numbers.randint(1, LARGEST)))
        self.left -= len(piece)
        return piece

    def receive(self, octets):
        self.came.update(octets)
        self.count += len(octets)

    def __str__(self):
        return f"{self.count} {self.came.hexdigest()}"


async def serve_asyncio(address, port):
    async def echo(reader, writer):
        while octets := await reader.read(LARGEST):
            writer.write(octets)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, address, port)
    await server.serve_forever()


async def ask_asyncio(address, port, all_pieces):
    async def ask(pieces):
        reader, writer = await asyncio.open_connection(address, port)

        async def send():
            while piece := pieces.next():
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        while octets := await reader.read(LARGEST):
            pieces.receive(octets)
        await sending
        writer.close()

    await asyncio.gather(*(ask(pieces) for pieces in all_pieces))


class Threaded(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 100


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while octets := self.request.recv(LARGEST):
            self.request.sendall(octets)


def serve_threads(address, port):
    Threaded((address, port), Echo).serve_forever()


def ask_threads(address, port, all_pieces):
    def send(connection, pieces):
        while piece := pieces.next():
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)

    def ask(pieces):
        with socket.create_connection((address, port)) as connection:
            sender = threading.Thread(target=send, args=(connection, pieces))
            sender.start()
            while octets := connection.recv(LARGEST):
                pieces.receive(octets)
            sender.join()

    threads = [threading.Thread(target=ask, args=(pieces,)) for pieces in all_pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serve_programs(address, port):
    """Serves each connection by another program's input and output, and closes it here at once."""
    children = []
    with socket.create_server((address, port), backlog=100) as listener:
        while True:
            connection = listener.accept()[0]
            with connection:
                children.append(subprocess.Popen(["cat"], stdin=connection, stdout=connection))
            children = [child for child in children if child.poll() is None]


class Loop:
    """A loop over connections that never block, each with octets to send and an
    interest in both directions."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.open = 0

    def add(self, connection, pieces=None):
        connection.setblocking(False)
        # Nothing to send yet: the end that asks begins to send, a server waits for octets to echo.
        state = {"pieces": pieces, "out": b"", "read": True, "write": pieces is not None}
        self.selector.register(connection, self.interest(state), state)
        self.open += 1

    @staticmethod
    def interest(state):
        return selectors.EVENT_READ * state["read"] | selectors.EVENT_WRITE * state["write"]

    def turn(self):
        for key, events in self.selector.select():
            if key.data is None:
                self.add(key.fileobj.accept()[0])
                continue
            if events & selectors.EVENT_READ:
                self.read(key.fileobj, key.data)
            if events & selectors.EVENT_WRITE:
                self.write(key.fileobj, key.data)
            self.update(key.fileobj, key.data)

    def read(self, connection, state):
        try:
            octets = connection.recv(LARGEST)
        except OSError:
            if state["pieces"]:
                raise
            # A server goes on without a client that is not understood (outsider.py).
            state["read"] = state["write"] = False
            return
        if state["pieces"]:
            state["pieces"].receive(octets)
            state["read"] = bool(octets)
        else:
            state["out"] += octets
            # No more than one piece is kept: the other end has to wait.
            state["read"] = False
            state["write"] = True
            state["end"] = not octets

    def write(self, connection, state):
        asking = state["pieces"]
        if asking and not state["out"]:
            state["out"] = asking.next()
        if state["out"]:
            try:
                state["out"] = state["out"][connection.send(state["out"]):]
            except BlockingIOError:
                return
        elif asking:
            connection.shutdown(socket.SHUT_WR)
            state["write"] = False
        if not asking and not state["out"]:
            state["write"], state["read"] = False, not state["end"]

    def update(self, connection, state):
        if state["read"] or state["write"]:
            self.selector.modify(connection, self.interest(state), state)
        else:
            self.selector.unregister(connection)
            connection.close()
            self.open -= 1


def serve_selectors(address, port):
    loop = Loop()
    with socket.create_server((address, port), backlog=100) as listener:
        loop.selector.register(listener, selectors.EVENT_READ)
        while True:
            loop.turn()


def ask_selectors(address, port, all_pieces):
    loop = Loop()
    for pieces in all_pieces:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        connection.setblocking(False)
        connection.connect_ex((address, port))
        loop.add(connection, pieces)
    while loop.open:
        loop.turn()


def main(role, kind, address, port, connections=0, mebioctets=0):
    if os.environ.get("MARKERS"):
        socket.socket = Marked
    all_pieces = [Pieces(number, int(mebioctets) << 20) for number in range(int(connections))]
    extra = () if role == "serve" else (all_pieces,)
    call = globals()[f"{role}_{kind}"](address, int(port), *extra)
    if call is not None:
        asyncio.run(call)
    print(*all_pieces, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Records what a client and a server of protocol 1 say to each other: the octets of a put and of a
get, FPDU by FPDU.

    cli/tests/recorded/record.py RDDP

RDDP is the command of commit 8b6a9e8, which speaks protocol 1 alone. Writes `put` and `get` beside
this file: `>` begins what the client sends, `<` what the server sends, in hexadecimal.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading

HERE = pathlib.Path(__file__).parent
CONTENT = bytes(count * 7 % 251 for count in range(1500))


class Recorder:
    """A connection that is passed on, and written down."""

    def __init__(self, server):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = server
        self.frames = []
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.server))
        threads = [
            threading.Thread(target=self.carry, args=("<", server, client)),
            threading.Thread(target=self.carry, args=(">", client, server)),
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

    def carry(self, mark, source, sink):
        octets, is_begun = b"", False
        while more := source.recv(1 << 16):
            octets += more
            with self.lock:
                while (end := self.end(octets, is_begun)) <= len(octets):
                    self.frames.append((mark, octets[:end]))
                    octets, is_begun = octets[end:], True
            sink.sendall(more)
        assert not octets
        sink.shutdown(socket.SHUT_WR)

    @staticmethod
    def end(octets, is_begun):
        """Returns where the first frame ends: a startup frame, or an FPDU."""
        if not is_begun:
            return 20 + int.from_bytes(octets[18:20], "big") if len(octets) >= 20 else 20
        if len(octets) < 2:
            return 2
        return (2 + int.from_bytes(octets[:2], "big") + 3) // 4 * 4 + 4


def record(rddp, op):
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        (top / "served").mkdir()
        for path in ["file", "served/file"]:
            (top / path).write_bytes(CONTENT)
            (top / path).chmod(0o644)
        serve = [rddp, "serve", top / "served", "--bind", "127.0.0.1", "--port", "0", "--json"]
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        host = json.loads(server.stdout.readline())["listening"]
        recorder = Recorder(int(host.rsplit(":", 1)[1]))
        remote = f"127.0.0.1:{recorder.port}/{'put' if op == 'put' else 'file'}"
        names = [top / "file", remote] if op == "put" else [remote, top / "got"]
        subprocess.run([rddp, op, *names], check=True, stdout=subprocess.DEVNULL)
        recorder.thread.join()
        server.terminate()
        server.wait()
    lines = [f"{mark} {line}" if first else f"  {line}"
             for mark, octets in recorder.frames
             for first, line in ((i == 0, l) for i, l in enumerate(textwrap.wrap(octets.hex(), 96)))]
    (HERE / op).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for op in ["put", "get"]:
        record(pathlib.Path(sys.argv[1]).resolve(), op)

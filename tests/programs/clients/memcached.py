"""Sets and gets values in memcached: memcached.py ADDRESS PORT CLIENTS COUNT

Each client is a thread with a connection and sets COUNT values of its own, the lengths of which
follow from a seed; then it gets them back, one at a time and many at once. Prints a hash of all
that came back, and what the server counted.
"""

import hashlib
import random
import socket
import sys
import threading

address, port, clients, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
hashes = [None] * clients


class Client:
    def __init__(self):
        self.connection = socket.create_connection((address, port), timeout=60)
        self.file = self.connection.makefile("rb")

    def set(self, key, value):
        self.connection.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
        answer = self.file.readline()
        if answer != b"STORED\r\n":
            raise SystemExit(f"set {key}: {answer!r}")

    def get(self, keys):
        self.connection.sendall(f"get {' '.join(keys)}\r\n".encode())
        while (line := self.file.readline()) != b"END\r\n":
            _, key, _, length = line.split()
            yield key.decode(), self.file.read(int(length))
            self.file.read(2)

    def stat(self, *names):
        self.connection.sendall(b"stats\r\n")
        stats = {}
        while (line := self.file.readline()) != b"END\r\n":
            _, name, value = line.split(maxsplit=2)
            stats[name.decode()] = value.decode().strip()
        return [f"{name} {stats[name]}" for name in names]


def length(numbers):
    return min(1 << 20, int(2 ** numbers.uniform(0, 20)))


def work(number):
    numbers = random.Random(number)
    client = Client()
    values = {f"{number}:{index}": numbers.randbytes(length(numbers)) for index in range(count)}
    for key, value in values.items():
        client.set(key, value)
    came = hashlib.sha256()
    keys = sorted(values)
    for start in range(0, len(keys), 20):
        for key, value in client.get(keys[start:start + 20]):
            came.update(key.encode() + value)
    for key in keys[::7]:
        for _, value in client.get([key]):
            came.update(value)
    hashes[number] = came.hexdigest()


threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*hashes, sep="\n")
print(*Client().stat("cmd_set", "get_hits", "get_misses"), sep=", ")
sys.exit(None in hashes)

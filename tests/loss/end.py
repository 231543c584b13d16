"""A program that uses sockets: sends a stream and receives another, at once, and prints the digests
of both: end.py server|client ADDRESS PORT OCTETS SIZE, with SIZE octets a call."""

import hashlib
import random
import socket
import sys
import threading


def main():
    role, address, port, octets, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    if role == "server":
        with socket.create_server((address, port)) as listener:
            print("listening", flush=True)
            connection, _ = listener.accept()
    else:
        connection = socket.create_connection((address, port), timeout=None)
    with connection:
        sent, received = [], []
        threads = [threading.Thread(target=send, args=(connection, role, octets, size, sent)),
                   threading.Thread(target=receive, args=(connection, size, received))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("sent", *sent)
    print("received", *received)


def send(connection, role, octets, size, digests):
    draw, digest = random.Random(role), hashlib.sha256()
    block = draw.randbytes(size + 4096)
    while octets:
        begin = draw.randrange(4096)
        piece = block[begin:begin + min(size, octets)]
        connection.sendall(piece)
        digest.update(piece)
        octets -= len(piece)
    connection.shutdown(socket.SHUT_WR)
    digests.append(digest.hexdigest())


def receive(connection, size, digests):
    digest, room = hashlib.sha256(), bytearray(size)
    while count := connection.recv_into(room):
        digest.update(room[:count])
    digests.append(digest.hexdigest())


main()

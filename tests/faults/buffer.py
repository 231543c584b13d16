"""Receives into memory that it may not write: EFAULT, and the octets are still there. The argument
is the number of messages. Run by ./run."""

import ctypes
import errno
import mmap
import socket
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.recv.restype = ctypes.c_ssize_t
libc.recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]

SIZES = (1, 64, 300, 300, 300, 300, 5000, 200_000)


def message(number):
    return bytes([number % 251]) * SIZES[number % len(SIZES)]


def send_all(listener, count):
    with listener.accept()[0] as peer:
        for number in range(count):
            peer.sendall(message(number))
            peer.recv(1)


def main():
    count, length = int(sys.argv[1]), 64 * 1024
    at = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = threading.Thread(target=send_all, args=(listener, count), daemon=True)
        peer.start()
        with socket.create_connection(listener.getsockname(), timeout=30) as end:
            end.settimeout(None)
            for number in range(count):
                # The message has come, most probably, and the library takes it without a wait.
                time.sleep(0.005)
                got, reason = libc.recv(end.fileno(), at, len(message(number)), 0), ctypes.get_errno()
                if got != -1 or reason != errno.EFAULT:
                    sys.exit(f"message {number}: recv is {got}, {errno.errorcode.get(reason)}")
                wanted, octets = message(number), b""
                while len(octets) < len(wanted):
                    octets += end.recv(length) or sys.exit(f"message {number}: the end")
                if octets != wanted:
                    sys.exit(f"message {number}: other octets")
                end.sendall(b"x")
        peer.join()
    print("as it should be")


main()

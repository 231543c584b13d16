"""Files in memory and out of it, as the kernel tells (mincore(2))."""

import ctypes
import mmap
import os
import socket
import time

from .instrument import Fault

PAGE = mmap.PAGESIZE


def resident(path):
    """Returns the number of pages of a file that are in memory, and the number of all."""
    with open(path, "rb") as file:
        pages = -(-os.fstat(file.fileno()).st_size // PAGE)
        # Writable, though nobody writes, since ctypes takes the address of nothing else.
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            first = ctypes.c_char.from_buffer(mapped)
            told = (ctypes.c_ubyte * pages)()
            failed = ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(first)),
                                                               ctypes.c_size_t(len(mapped)), told)
            del first
        if failed:
            raise Fault(f"mincore: {os.strerror(ctypes.get_errno())}")
    return bytes(told).count(1), pages


def warm(path):
    """Has all of a file in memory."""
    here, pages = resident(path)
    if here < pages:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
        here, pages = resident(path)
    if here < pages:
        raise Fault(f"{path}: {pages - here} of {pages} pages are not in memory")


def cool(path):
    """Has nothing of a file in memory: it has been written to the disk, and nobody maps it. The
    kernel keeps a page for a moment longer that some processor has just touched."""
    for attempt in range(1000):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        here, pages = resident(path)
        if not here:
            return
        if attempt:
            free_packets()
        time.sleep(0.01)
    raise Fault(f"{path}: {here} of {pages} pages stay in memory")


def free_packets():
    """Has each processor free the packets that it keeps until its next: those of `sendfile` hold
    pages of the file."""
    ours = os.sched_getaffinity(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_itself:
        to_itself.bind(("127.0.0.1", 0))
        for processor in ours:
            os.sched_setaffinity(0, {processor})
            to_itself.sendto(b"", to_itself.getsockname())
            to_itself.recv(1)
    os.sched_setaffinity(0, ours)

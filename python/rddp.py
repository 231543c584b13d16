"""RDMA over a program's own TCP sockets: the calls of rddp/raw.h, and the options of rddp/ddp.h.

    import socket, rddp

    sock = rddp.raw_socket()
    queue = rddp.Queue()
    endpoint = rddp.Endpoint(sock, queue)
    memory = rddp.Memory(4096, rddp.LOCAL_WRITE | rddp.REMOTE_WRITE)
    endpoint.receive(memory)                # before the peer can send
    sock.connect(("192.0.2.1", 7471))       # TCP, then the startup
    queue.expect(rddp.CONNECTED)
    endpoint.write(memory, stag, to)        # to the peer's memory
    queue.expect(rddp.WRITE)

The library has to be in the process before Python makes sockets: `rddp run -- python3 PROGRAM`.
Numbers and rules are those of the headers, which say what each call does and each error means; a
call that fails raises OSError. One file without dependencies: it may as well be copied.
"""

import ctypes
import errno
import os
import socket
import time
import weakref

__all__ = ["Endpoint", "Event", "Info", "Memory", "ModeInfo", "NotLoaded", "Piece", "PlacementInfo", "Queue", "Work",
           "WorkFailed", "kind_name", "mode_info", "placement_info", "raw_socket", "strerror", "terminate_name",
           "version"]

# Options of sockets, at level SOL_DDP.
SOL_DDP = 0x4444
DDPMODE, DDP_ROLE, DDP_CRC, DDP_MARKERS, DDP_IRD, DDP_ORD, DDP_RTR, DDP_PRIVATE_DATA = range(1, 9)
DDP_LARGEST_SEND, DDP_GATHER, DDP_MODE_INFO, DDP_PEER_PRIVATE_DATA = range(9, 13)
DDP_PLACEMENT, DDP_PLACEMENT_INFO = 24, 25
DDPMODE_RAW, DDPMODE_SDP = 2, 3

# Levels of placement.
PLACEMENT_USER, PLACEMENT_AUTO, PLACEMENT_KERNEL = range(3)

# Rights to registered memory.
LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC = 1, 2, 4, 8
CAN_BIND, REMOTE_INVALIDATE, ZERO_BASED, POPULATE, LOCK, KERNEL = 16, 32, 64, 256, 512, 1024

# Operations, which are also kinds of events; and the other kinds.
RECEIVE, SEND, SEND_INVALIDATE, WRITE, WRITE_IMMEDIATE, IMMEDIATE = range(1, 7)
READ, READ_INVALIDATE, FETCH_ADD, CMP_SWAP, BIND, INVALIDATE = range(7, 13)
CONNECTED, CLOSED, REQUESTED, LIMIT = range(101, 105)

# Flags of works.
INLINE, SOLICITED, QUIET, READ_FENCE, FENCE = 1, 2, 4, 8, 16

# Flags of events.
EVENT_SOLICITED, EVENT_INVALIDATED, EVENT_IMMEDIATE, EVENT_TERMINATE_SENT, EVENT_TERMINATE_RECEIVED = 1, 2, 4, 8, 16

# Flags of queues and endpoints.
QUEUE_UNWATCHED = 1
ENDPOINT_WAIT, ENDPOINT_NO_INBOUND_READ, ENDPOINT_NO_INBOUND_WRITE, ENDPOINT_REVISION_1 = 1, 2, 4, 8
ENDPOINT_EARLY_PLACEMENT, ENDPOINT_ASK = 16, 32

# How a connection ends, and answers to a peer's Request.
GRACEFUL, TERMINATE, ABORT = 0, 1, 2
ACCEPT, REJECT = 1, 2


class NotLoaded(RuntimeError):
    """The library is not in this process."""

    def __init__(self):
        super().__init__("librddp_sockets.so is not loaded: start the program with `rddp run -- python3 ...`")


class WorkFailed(Exception):
    """A work or a connection that failed: `event` tells which, and why."""

    def __init__(self, event):
        super().__init__(str(event))
        self.event = event


_library = ctypes.CDLL(None, use_errno=True)


def _function(name):
    try:
        return getattr(_library, name)
    except AttributeError:
        raise NotLoaded from None


def _call(name, *args):
    ctypes.set_errno(0)
    result = _function(name)(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _text(name, *args):
    function = _function(name)
    function.restype = ctypes.c_char_p
    return function(*args).decode()


def version():
    """Returns the version of the library."""
    return _text("ddp_version")


def kind_name(kind):
    """Returns the name of a kind of events, such as "RDMA Write"."""
    return _text("ddp_kind_name", ctypes.c_uint32(kind))


def strerror(kind, status):
    """Returns what the status of an event of this kind means."""
    return _text("ddp_strerror", ctypes.c_uint32(kind), ctypes.c_int(status))


def terminate_name(terminate):
    """Returns layer, error type and code of a Terminate (0xLECC) in words."""
    return _text("ddp_terminate_name", ctypes.c_uint32(terminate))


class Piece(ctypes.Structure):
    """A piece of registered memory: struct ddp_sge."""

    _fields_ = [("to", ctypes.c_uint64), ("length", ctypes.c_uint32), ("stag", ctypes.c_uint32)]


class Work(ctypes.Structure):
    """A work for `Endpoint.post`: struct ddp_work. `args` are the four numbers of its union."""

    _fields_ = [("tag", ctypes.c_uint64), ("op", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("list", ctypes.POINTER(Piece)), ("count", ctypes.c_uint32), ("stag", ctypes.c_uint32),
                ("to", ctypes.c_uint64), ("args", ctypes.c_uint64 * 4)]

    def __init__(self, op, pieces=(), **fields):
        super().__init__(op=op, list=(Piece * len(pieces))(*pieces), count=len(pieces), **fields)


class Event(ctypes.Structure):
    """What has happened to an endpoint: struct ddp_event."""

    _fields_ = [("endpoint", ctypes.c_uint64), ("tag", ctypes.c_uint64), ("kind", ctypes.c_uint32),
                ("status", ctypes.c_int32), ("fd", ctypes.c_int32), ("length", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("stag", ctypes.c_uint32), ("immediate", ctypes.c_uint8 * 8),
                ("terminate", ctypes.c_int32), ("reserved", ctypes.c_uint32)]

    def __str__(self):
        said = f"{kind_name(self.kind)}: {strerror(self.kind, self.status)}"
        if self.flags & (EVENT_TERMINATE_SENT | EVENT_TERMINATE_RECEIVED):
            said += f" ({self.terminate:#06x}, {terminate_name(self.terminate)})"
        return said


class _Attach(ctypes.Structure):
    """struct ddp_endpoint."""

    _fields_ = [("queue", ctypes.c_int32), ("domain", ctypes.c_int32), ("tag", ctypes.c_uint64),
                ("max_send", ctypes.c_uint32), ("max_recv", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("timeout", ctypes.c_uint32), ("receives", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


class Info(ctypes.Structure):
    """The state of a connection: struct ddp_info."""

    _fields_ = [("mode", ctypes.c_int32), ("failure", ctypes.c_int32), ("terminate_sent", ctypes.c_int32),
                ("terminate_received", ctypes.c_int32), ("ird", ctypes.c_uint32), ("ord", ctypes.c_uint32),
                ("revision", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("octets_sent", ctypes.c_uint64),
                ("octets_received", ctypes.c_uint64), ("private_length", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("private_octets", ctypes.c_uint8 * 512)]

    @property
    def private_data(self):
        """The private data of the peer's startup frame."""
        return bytes(self.private_octets[:self.private_length])


class ModeInfo(ctypes.Structure):
    """The state of a socket in DDPMODE: struct ddp_mode_info."""

    _fields_ = [(name, ctypes.c_int32) for name in ("mode", "role", "failure", "raw", "terminate")]


def mode_info(sock):
    """Returns the state of a socket in DDPMODE."""
    return ModeInfo.from_buffer_copy(sock.getsockopt(SOL_DDP, DDP_MODE_INFO, ctypes.sizeof(ModeInfo)))


class PlacementInfo(ctypes.Structure):
    """What the kernel has placed of a connection: struct ddp_placement_info."""

    _fields_ = [("placement", ctypes.c_int32), ("interface", ctypes.c_uint32),
                *((name, ctypes.c_uint64) for name in ("segments", "placed", "confirmed", "wrong", "octets",
                                                       "octets_behind", "octets_unseen", "unaligned"))]


def placement_info(sock):
    """Returns the level at which a connection in raw mode is placed, and the kernel's counts."""
    size = ctypes.sizeof(PlacementInfo)
    return PlacementInfo.from_buffer_copy(sock.getsockopt(SOL_DDP, DDP_PLACEMENT_INFO, size))


def raw_socket(family=socket.AF_INET):
    """Returns a TCP socket in raw mode, to connect or to listen."""
    _function("ddp_attach")
    sock = socket.socket(family)
    sock.setsockopt(SOL_DDP, DDPMODE, DDPMODE_RAW)
    return sock


class Memory:
    """Registered memory: `length` octets that are allocated here, or a writable buffer such as a
    bytearray or an mmap. `octets` is a memoryview of it, which the peer may change at any time if
    it has the right. It is deregistered by `close` or with the object.

    Or an open file, from octet `start` to `stop` (None: its end), which peers Read and own messages
    may be of: it is not mapped, and has no `octets`. `Memory(open(path, "rb"), REMOTE_READ)` serves
    a file; it may be closed then.

    With KERNEL, `length` octets are allocated that the kernel can place into. They stay while there
    are views of them, but no longer than until `close`: then views must not be used any more."""

    def __init__(self, length, access, domain=0, start=0, stop=None):
        stag = ctypes.c_uint32()
        if hasattr(length, "fileno"):
            self._register_file(length.fileno(), access, domain, start, stop)
            return
        if access & KERNEL:
            begin = ctypes.c_void_p()
            _call("ddp_allocate", domain, ctypes.c_size_t(length), access, ctypes.byref(begin), ctypes.byref(stag))
            place = (ctypes.c_char * length).from_address(begin.value)
        elif isinstance(length, int):
            place = (ctypes.c_char * length)()
        else:
            place = (ctypes.c_char * memoryview(length).nbytes).from_buffer(length)
        self.length = ctypes.sizeof(place)
        if not access & KERNEL:
            _call("ddp_register", domain, place, ctypes.c_size_t(self.length), access, ctypes.byref(stag))
        self.stag = stag.value
        self.to = 0 if access & ZERO_BASED else ctypes.addressof(place)
        self.octets = memoryview(place).cast("B")
        # The program's memory is held until the library does not access it any more; the library's
        # own until no view shows it.
        of, held = (place, None) if access & KERNEL else (self, place)
        self._end = weakref.finalize(of, _deregister, self.stag, held)

    def _register_file(self, fd, access, domain, start, stop):
        stag, to = ctypes.c_uint32(), ctypes.c_uint64()
        stop = os.fstat(fd).st_size if stop is None else stop
        if not 0 <= start <= stop < 1 << 64:
            raise ValueError(f"octets {start} to {stop} of a file")
        _call("ddp_register_file", domain, fd, ctypes.c_uint64(start), ctypes.c_uint64(stop - start), access,
              ctypes.byref(stag), ctypes.byref(to))
        self.length, self.stag, self.to, self.octets = stop - start, stag.value, to.value, None
        self._end = weakref.finalize(self, _deregister, self.stag, None)

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        """Returns an octet; of a slice a copy of its octets, as bytes."""
        found = self.octets[at]
        return bytes(found) if isinstance(at, slice) else found

    def __setitem__(self, at, octets):
        self.octets[at] = octets

    def piece(self, at=0, length=None):
        """Returns a piece: `length` octets from `at` on, by default all that follow."""
        return Piece(self.to + at, self.length - at if length is None else length, self.stag)

    def close(self):
        """Deregisters the memory. Works that name it fail."""
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _deregister(stag, _place):
    _library.ddp_deregister(ctypes.c_uint32(stag))


class Queue:
    """A queue of events. It has a `fileno` for select, poll and asyncio, readable while there are
    events; with QUEUE_UNWATCHED, which is faster, only `events` serves it."""

    def __init__(self, flags=0):
        self._fd = _call("ddp_queue", flags)

    def fileno(self):
        return self._fd

    def events(self, room=64, timeout=None):
        """Takes at most `room` events, and waits for the first at most `timeout` seconds (None:
        without limit). Returns a list."""
        events, count = (Event * room)(), 0
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = -1 if end is None else max(0, round((end - time.monotonic()) * 1000))
            try:
                count = _call("ddp_events", self._fd, events, room, left)
                return events[:count]
            except InterruptedError:
                pass  # Python has run its handler

    def expect(self, kind, timeout=10):
        """Returns the next event, which has to be a success of this kind; WorkFailed is raised for
        any other, TimeoutError if none comes."""
        events = self.events(1, timeout)
        if not events:
            raise TimeoutError(errno.ETIMEDOUT, f"no event came: {kind_name(kind)} was waited for")
        event, = events
        if event.kind != kind or event.status != 0:
            raise WorkFailed(event)
        return event

    def close(self):
        """Closes the queue, which disconnects its endpoints."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Endpoint:
    """A socket in raw mode that is attached to a queue: one end of an RDMA connection. Settings
    are the fields of struct ddp_endpoint: tag, domain, max_send, max_recv, flags, timeout,
    receives.

    A connecting socket then connects; an accepted one calls `begin`. Memory that works name stays
    as it is until their event."""

    def __init__(self, sock, queue, **settings):
        self.sock, self.queue = sock, queue
        _call("ddp_attach", sock.fileno(), ctypes.byref(_Attach(queue=queue.fileno(), **settings)))

    def begin(self):
        """Begins the startup of an accepted connection, which goes on in the background."""
        _call("ddp_begin", self.sock.fileno())

    def answer(self, answer, private_data=b""):
        """Accepts or rejects the peer's Request (ENDPOINT_ASK)."""
        _call("ddp_answer", self.sock.fileno(), answer, private_data or None, ctypes.c_size_t(len(private_data)))

    def disconnect(self, how=GRACEFUL):
        """Ends the connection; the event CLOSED follows."""
        _call("ddp_disconnect", self.sock.fileno(), how)

    def info(self):
        """Returns the state of the connection."""
        info = Info()
        _call("ddp_info", self.sock.fileno(), ctypes.byref(info))
        return info

    def post(self, *works):
        """Posts works. Where OSError is raised, those before the one that failed are posted."""
        while works:
            taken = _call("ddp_post", self.sock.fileno(), (Work * len(works))(*works), len(works))
            works = works[taken:]

    def receive(self, *pieces, tag=0):
        """Posts a receive for one Send of the peer."""
        self.post(Work(RECEIVE, _pieces(pieces), tag=tag))

    def send(self, *what, tag=0, flags=0):
        """Posts a Send: of pieces, or of up to 512 octets that the call copies."""
        if len(what) == 1 and isinstance(what[0], (bytes, bytearray)):
            place = ctypes.create_string_buffer(bytes(what[0]), len(what[0]))
            piece = Piece(ctypes.addressof(place), len(what[0]), 0)
            self.post(Work(SEND, [piece], tag=tag, flags=flags | INLINE))
        else:
            self.post(Work(SEND, _pieces(what), tag=tag, flags=flags))

    def write(self, source, stag, to, tag=0, flags=0):
        """Posts an RDMA Write of a piece to the peer's memory."""
        self.post(Work(WRITE, _pieces([source]), stag=stag, to=to, tag=tag, flags=flags))

    def read(self, sink, stag, to, tag=0, flags=0):
        """Posts an RDMA Read of the peer's memory into a piece."""
        self.post(Work(READ, _pieces([sink]), stag=stag, to=to, tag=tag, flags=flags))

    def fetch_add(self, sink, stag, to, add, tag=0, flags=0):
        """Posts an atomic addition to 8 octets of the peer; the piece gets the old ones."""
        self.post(Work(FETCH_ADD, _pieces([sink]), stag=stag, to=to, tag=tag, flags=flags, args=(add, 0, 0, 0)))

    def cmp_swap(self, sink, stag, to, compare, swap, tag=0, flags=0):
        """Posts an atomic comparison of 8 octets of the peer, which are replaced if they are
        equal; the piece gets the old ones."""
        every = (1 << 64) - 1
        args = (compare, every, swap, every)
        self.post(Work(CMP_SWAP, _pieces([sink]), stag=stag, to=to, tag=tag, flags=flags, args=args))


def _pieces(given):
    return [what.piece() if isinstance(what, Memory) else what for what in given]

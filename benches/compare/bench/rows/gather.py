"""Messages in pieces, by the three ways that the OSU report has of making one FPDU of them."""

import tempfile
from pathlib import Path

from .. import capture
from ..dump import Dump
from ..namespaces import ADDRESSES, inside, veth, without_offload
from ..plan import KIB, medians, rate_name, ratios, size_name
from ..result import CannotMeasure, Item
from .kind import RowKind
from .passthrough import window_of
from .syscalls import counted

SIZE = 32 * KIB
PIECES = (1, 2, 17, 1024)
WAYS = ("writev", "copy", "cork")
SLICE_MS = 20
# Messages whose octets are compared.
CAPTURED = 8
ATTEMPTS = 3


def lane(pieces, way=None):
    """Returns a lane; plain TCP if `way` is None."""
    spec = {"size": SIZE, "wait": "sleep", "pieces": pieces, "depth": window_of(SIZE)}
    return spec | ({"op": "tcp"} if way is None else {"op": "ddp", "gather": way})


def measure(plan, row):
    with veth() as (passive, active):
        where = {"address": ADDRESSES[0], "server_in": (*inside(passive), *plan.preloaded),
                 "client_in": (*inside(active), *plan.preloaded)}
        for pieces in PIECES:
            measure_time(plan, row, where, pieces)
        for namespace in (passive, active):
            without_offload(namespace)
        first = {}
        for pieces in PIECES:
            measure_wire(plan, row, where, passive, pieces, first)


def measure_time(plan, row, where, pieces):
    with plan.instrument(**where) as ends:
        lanes = [ends.open(**lane(pieces, way)) for way in (None, *WAYS)]
        rates = plan.turns([lambda of=of: of.window(SLICE_MS) for of in lanes])
    for place, way in enumerate(WAYS, 1):
        pairs = [(taken[0], taken[place]) for taken in rates]
        sides = dict(zip(("TCP", way), map(rate_name, medians(pairs))))
        calls, messages = counted(plan, lane(pieces, way), "active", where)
        sides["system calls a message"] = f"{sum(calls.values()) / messages:.1f}"
        most = sorted(calls.items(), key=lambda call: -call[1])[:3]
        sides |= {f"`{call}`": f"{count / messages:.1f}" for call, count in most if count / messages >= 0.05}
        row.items.append(Item(f"bandwidth, {name_of(pieces)}, {way}", ratios(pairs), sides=sides))


def measure_wire(plan, row, where, namespace, pieces, first):
    """Compares the octets on the wire with those of the first capture of all, which `first` holds
    once there is one."""
    for way in WAYS:
        stream = captured(plan, where, namespace, lane(pieces, way))
        octets, count = bytes(capture.join(stream)[0]), capture.count_stream(stream)
        alike = first.setdefault("octets", octets) == octets
        sides = {"octets": str(len(octets)), "FPDUs": str(count.fpdus), "segments": str(count.segments),
                 "begin with an FPDU": f"{count.share:.0%}"}
        row.items.append(Item(f"octets on the wire, {name_of(pieces)}, {way}", [100.0 * alike], unit="% the same",
                              at_least=100, sides=sides))


def captured(plan, where, namespace, spec):
    """Captures some messages, and returns the payload by offset."""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "capture.pcap"
            with Dump(namespace, path), plan.instrument(**where) as ends:
                opened = ends.open(**spec)
                for _ in range(CAPTURED):
                    # A slice of no time carries one message.
                    opened.bandwidth(0)
            stream = capture.initiators(path)
        if capture.join(stream)[1] == 0:
            return stream
    raise CannotMeasure(f"the capture lacks segments in each of {ATTEMPTS} attempts")


def name_of(pieces):
    return f"{size_name(SIZE)} in {pieces} piece{'s' if pieces > 1 else ''}"


METHOD = f"""A message of {size_name(SIZE)} in equal pieces, by one `writev` of the program, on sockets in DDPMODE with the option
`DDP_GATHER`, CRC on, over veth with an MTU of 1500. Writev: header, pieces and trailer of many FPDUs in one vectored write. Copy:
the same copied together first. Cork: `TCP_CORK`, a `send` for each piece, and the cork pulled. The ratio is of the bandwidth of windows of
{window_of(SIZE)} messages against plain TCP with the same `writev`; system calls are those of the sender by `strace -c`, less what the
connection costs without traffic. Octets and segments are of a capture of {CAPTURED} messages, MPA startup and all, with segmentation
offload off so that a segment is what a wire would carry: the octets of all of them are compared with the first capture's."""

ROWS = [RowKind("gather", "Messages in pieces, by the report's three ways", METHOD, measure,
                packages=("iproute2", "ethtool", "tshark", "strace"), needs_root=True, page="sockets")]

"""Between two network namespaces, MTU 1500."""

import tempfile
from pathlib import Path

from .. import capture
from ..dump import Dump
from ..namespaces import ADDRESSES, inside, veth, without_offload
from ..plan import KIB, MIB, size_name
from ..result import CannotMeasure, Item
from .bandwidth import compare, item, spec, tcp
from .kind import RowKind

# Seconds of the traffic that is counted.
CAPTURED_MS = 30
ATTEMPTS = 3


def measure(plan, row):
    with veth() as (passive, active):
        where = {"address": ADDRESSES[0], "server_in": inside(passive), "client_in": inside(active)}
        for size in (64 * KIB, MIB):
            with plan.instrument(**where) as ends:
                base = ends.open(**tcp(size, "sleep"))
                for op in ("write", "send"):
                    ours = ends.open(**spec(op, size, "sleep", crc=True))
                    row.items.append(item(f"{op.capitalize()} {size_name(size)}", compare(plan, base, ours), at_least=0.8))
        for namespace in (passive, active):
            without_offload(namespace)
        for op, batch in (("write", 1), ("write", 4), ("send", 1), ("send", 4)):
            count = counted(plan, where, passive, op, batch)
            what = f"{op.capitalize()}s of 64 KiB posted {batch} at a time: share of TCP segments that begin with an FPDU"
            sides = {"segments": str(count.segments), "FPDUs": str(count.fpdus)}
            row.items.append(Item(what, [count.share * 100], unit="%", at_least=99, sides=sides))


def counted(plan, where, namespace, op, batch):
    """Captures some traffic at the receiver, once more if the capture is incomplete, and counts
    segments."""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "capture.pcap"
            with Dump(namespace, path), plan.instrument(**where) as ends:
                ends.open(**spec(op, 64 * KIB, "sleep", crc=True) | {"batch": batch}).bandwidth(CAPTURED_MS)
            count = capture.count(path)
        if count.missing == 0 and count.segments > 0:
            return count
    raise CannotMeasure(f"the capture lacks segments in each of {ATTEMPTS} attempts")


METHOD = """The script makes the namespaces. Both ends asleep while they wait. Segments are counted in a capture on
the receiving device, with segmentation and receive offload off so that it carries what a wire would; the script walks
the FPDUs itself."""

ROWS = [RowKind("veth", "Between two network namespaces over veth, MTU 1500, CRC on", METHOD, measure,
                packages=("iproute2", "ethtool", "tshark"), needs_root=True)]

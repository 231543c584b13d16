"""Between two network namespaces, MTU 1500."""

import tempfile
from pathlib import Path

from .. import capture
from ..dump import Dump
from ..namespaces import veth, without_offload
from ..plan import KIB, MIB, apart, receives_of, size_name, together
from ..result import CannotMeasure, Item
from ..ways import item, pairs_of, turns
from .bandwidth import DEPTH, spec, tcp
from .kind import RowKind
from .paths import places

# Milliseconds of the traffic that is counted.
CAPTURED_MS = 30
CAPTURES, ATTEMPTS = 8, 16
# Traffic whose segments are counted: operation, octets of a message, messages posted at once.
COUNTED = [
    (op, size, batch)
    for op in ("write", "send", "read")
    for size, batch in ((4 * KIB, 16), (64 * KIB, 1), (64 * KIB, 4))
]
# Least percentage of segments that begin with an FPDU: in the median capture, and in each.
MEDIAN, EACH = 99, 97


def measure(plan, row):
    with veth() as namespaces:
        for name, kept in (("apart", apart()), ("together", together())):
            measure_speed(plan, row, places(namespaces, kept), name)
        for namespace in namespaces:
            without_offload(namespace)
        for op, size, batch in COUNTED:
            row.items += measure_alignment(plan, namespaces, op, size, batch)


def measure_speed(plan, row, where, name):
    for size in (64 * KIB, MIB):
        with plan.instrument(**where) as ends:
            lanes = [
                ends.open(**tcp(size, "sleep")),
                *(ends.open(**spec(op, size, "sleep", crc=True)) for op in ("write", "send")),
            ]
            taken = turns(plan, lanes, None if name == "apart" else plan.slow_rounds)
        for place, op in enumerate(("Write", "Send"), 1):
            reach = 0.8 if name == "apart" else None
            row.items.append(
                item(f"{op} {size_name(size)}, {name}", pairs_of(taken, place), at_least=reach)
            )


def measure_alignment(plan, namespaces, op, size, batch):
    """Counts segments in several captures; yields the shares that begin with an FPDU, and the least
    of them."""
    passive, active = namespaces
    # The responder of a Read sends the octets.
    initiator, receiving = (False, active) if op == "read" else (True, passive)
    lane = spec(
        op,
        size,
        "sleep",
        crc=True,
        batch=batch,
        depth=max(DEPTH, batch),
        window=receives_of(size, DEPTH),
    )
    counts = captures(plan, places(namespaces, apart()), receiving, lane, initiator)
    shares = [count.share * 100 for count in counts]
    posted = f"{op.capitalize()}s of {size_name(size)} posted {batch} at a time"
    what = f"{posted}: share of TCP segments that begin with an FPDU"
    sides = {
        "segments": str(sum(count.segments for count in counts)),
        "FPDUs": str(sum(count.fpdus for count in counts)),
    }
    yield Item(what, shares, unit="%", at_least=MEDIAN, sides=sides)
    yield Item(f"{what}, least of {len(counts)} captures", [min(shares)], unit="%", at_least=EACH)


def captures(plan, where, namespace, lane, initiator):
    """Captures some traffic at its receiver several times, and counts segments. A capture that
    lacks some does not count."""
    counts = []
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "capture.pcap"
            with Dump(namespace, path), plan.instrument(**where) as ends:
                ends.open(**lane).bandwidth(CAPTURED_MS)
            count = capture.count(path, initiator)
        if count.missing == 0 and count.segments > 0:
            counts.append(count)
        if len(counts) == (2 if plan.quick else CAPTURES):
            return counts
    raise CannotMeasure(f"only {len(counts)} of {ATTEMPTS} captures have all segments")


METHOD = f"""The script makes the namespaces. Both ends asleep while they wait; calls, header,
places and processor time are those of crc-off. Segments are counted in {CAPTURES} captures on the
receiving device, of a slice of {CAPTURED_MS} ms each, with segmentation and receive offload off
so that it carries what a wire would; the script walks the FPDUs itself."""

ROWS = [
    RowKind(
        "veth",
        "Between two network namespaces over veth, MTU 1500, CRC on",
        METHOD,
        measure,
        packages=("iproute2", "ethtool", "tshark"),
        needs_root=True,
    )
]

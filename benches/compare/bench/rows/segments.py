"""What it costs that FPDUs begin TCP segments, and what it saves that they may be longer."""

from ..namespaces import veth
from ..plan import KIB, MIB, apart, receives_of, size_name
from ..ways import item, pairs_of, turns
from .bandwidth import DEPTH, spec, tcp
from .kind import RowKind
from .paths import OPS, batch_of, places

SIZES = [KIB, 4 * KIB, 64 * KIB, MIB]
# An EMSS that is no multiple of 4: FPDUs are not aligned then.
UNALIGNED = 1459


def lane(op, size, **more):
    batch = batch_of(size)
    window = receives_of(size, DEPTH)
    return spec(op, size, "sleep", crc=True) | {"batch": batch, "depth": max(DEPTH, 4 * batch), "window": window} | more


def measure_alignment(plan, row):
    with veth() as namespaces:
        for size in SIZES:
            for op in OPS:
                with plan.instrument(**places(namespaces, apart())) as ends:
                    lanes = [ends.open(**lane(op, size, mss=UNALIGNED)), ends.open(**lane(op, size))]
                    taken = turns(plan, lanes)
                what = f"{op}s of {size_name(size)}"
                row.items.append(item(what, pairs_of(taken, 1), ("not aligned", "aligned"), unit="x not aligned"))


def measure_large(plan, row):
    with veth() as namespaces:
        for size in SIZES[2:]:
            for op in OPS:
                with plan.instrument(**places(namespaces, apart())) as ends:
                    lanes = [
                        ends.open(**tcp(size, "sleep", batch=batch_of(size))),
                        ends.open(**lane(op, size)),
                        ends.open(**lane(op, size, large=True)),
                    ]
                    taken = turns(plan, lanes)
                for place, name in enumerate(["segments' length", "large"], 1):
                    row.items.append(item(f"{op}s of {size_name(size)}, FPDUs: {name}", pairs_of(taken, place)))


ROWS = [
    RowKind(
        "alignment",
        "FPDUs that begin segments, beside FPDUs that do not, over veth, MTU 1500, CRC on",
        """The same as row paths, between two ends of rddp that differ by one octet of the segment
size: with 1,448 FPDUs begin segments, as RFC 5044 §5.1 asks, with 1,447 they do not.""",
        measure_alignment,
        packages=("iproute2",),
        needs_root=True,
    ),
    RowKind(
        "large",
        "FPDUs longer than segments, by consent, over veth, MTU 1500, CRC on",
        "As row paths, with FPDUs as long as the EMSS allows and as long as MPA allows.",
        measure_large,
        packages=("iproute2",),
        needs_root=True,
    ),
]

"""Several connections at once."""

from ..plan import KIB, medians, rate_name, ratios
from ..result import Item
from .bandwidth import spec, tcp
from .kind import RowKind

CONNECTIONS = 8
SIZE = 64 * KIB


def measure(plan, row):
    for wait, how in (("sleep", "asleep while they wait"), ("poll", "polling")):
        with plan.instrument() as ends:
            base = ends.open(**tcp(SIZE, wait, connections=CONNECTIONS))
            ours = ends.open(**spec("write", SIZE, wait, connections=CONNECTIONS, crc=True))
            pairs = plan.compare(lambda: both(base, plan), lambda: both(ours, plan))
        rates = [(base[0], ours[0]) for base, ours in pairs]
        costs = [(base[1], ours[1]) for base, ours in pairs]
        sides = dict(zip(("TCP", "rddp"), map(rate_name, medians(rates))))
        row.items.append(Item(f"8 x Write 64 KiB, both ends {how}", ratios(rates), at_least=0.85, sides=sides))
        sides = {name: f"{cost * 1e9:.2f} s/GB" for name, cost in zip(("TCP", "rddp"), medians(costs))}
        # Ends that poll are busy whatever they carry.
        reach = 1.25 if wait == "sleep" else None
        row.items.append(Item(f"processor time of both ends for a GB, both {how}", ratios(costs), at_most=reach, sides=sides))


def both(lane, plan):
    """Returns octets a second, and seconds of processor time an octet."""
    report = lane.slice("bandwidth", plan.ms)
    cpu_s = report["active"]["cpu_s"] + report["passive"]["cpu_s"]
    return report["octets"] / report["seconds"], cpu_s / report["octets"]


METHOD = """One thread of the program at each end, for TCP too (non-blocking sockets and `poll`). Processor time is
user and system time of both processes."""

ROWS = [RowKind("parallel", "8 QPs in parallel, 64 KiB Writes, CRC on, against 8 TCP streams", METHOD, measure)]

"""All rows, in the order of the table."""

from dataclasses import replace

from . import (bandwidth, calls, curves, ddpmode, gather, iperf, latency, libfabric, many, nginx, parallel, passthrough,
               paths, perftest, register, sdp, segments, syscalls, ucx, veth)


def under_bbr(kind):
    """Returns a row that is measured once more where BBR paces each socket by a timer."""

    def measure(plan, row):
        kind.measure(plan, row)
        for item in row.items:
            item.at_least = item.at_most = None

    return replace(kind, name=f"{kind.name}-bbr", title=f"{kind.title}, under BBR (information)", measure=measure,
                   congestion="bbr")


UNDER_BBR = [under_bbr(kind) for kind in (*bandwidth.ROWS, *veth.ROWS) if kind.name in ("crc-off", "crc-on", "read", "veth")]
ROWS = [*bandwidth.ROWS, *parallel.ROWS, *veth.ROWS, *paths.ROWS, *UNDER_BBR, *segments.ROWS, *latency.ROWS, *libfabric.ROWS, *ucx.ROWS, *perftest.ROWS, *many.ROWS,
        *register.ROWS, *curves.ROWS, *syscalls.ROWS, *passthrough.ROWS, *calls.ROWS, *ddpmode.ROWS, *gather.ROWS, *nginx.ROWS,
        *sdp.ROWS, *iperf.ROWS]

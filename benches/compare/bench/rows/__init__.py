"""All rows, in the order of the table."""

from . import (bandwidth, calls, curves, ddpmode, gather, iperf, latency, libfabric, many, nginx, parallel, passthrough,
               paths, perftest, register, sdp, segments, syscalls, ucx, veth)

ROWS = [*bandwidth.ROWS, *parallel.ROWS, *veth.ROWS, *paths.ROWS, *segments.ROWS, *latency.ROWS, *libfabric.ROWS, *ucx.ROWS, *perftest.ROWS, *many.ROWS,
        *register.ROWS, *curves.ROWS, *syscalls.ROWS, *passthrough.ROWS, *calls.ROWS, *ddpmode.ROWS, *gather.ROWS, *nginx.ROWS,
        *sdp.ROWS, *iperf.ROWS]

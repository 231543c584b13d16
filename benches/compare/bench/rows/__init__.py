"""All rows, in the order of the table."""

from . import bandwidth, curves, latency, libfabric, many, parallel, register, syscalls, ucx, veth

ROWS = [*bandwidth.ROWS, *parallel.ROWS, *veth.ROWS, *latency.ROWS, *libfabric.ROWS, *ucx.ROWS, *many.ROWS, *register.ROWS,
        *curves.ROWS, *syscalls.ROWS]

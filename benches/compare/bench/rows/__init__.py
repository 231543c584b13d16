"""All rows, in the order of the table."""

from . import bandwidth, curves, latency, libfabric, ucx

ROWS = [*bandwidth.ROWS, *latency.ROWS, *libfabric.ROWS, *ucx.ROWS, *curves.ROWS]

"""The charts of each page, from rows that were measured: name -> chart."""

from .plan import size_name
from .svg import Chart


def lines_of(rows):
    """Returns chart -> line -> points. TCP and rddp come first in the legend."""
    lines = {}
    for row in sorted(rows, key=lambda row: row.name != "curves"):
        for series in row.series:
            lines.setdefault(series["chart"], {})[series["line"]] = series["points"]
    return lines


def engine(rows):
    lines, drawn = lines_of(rows), {}
    if "bandwidth" in lines:
        how = ("one connection, loopback; TCP: one write a message; rddp: up to 16 requests posted at once; "
               "others: one at a time")
        drawn["bandwidth"] = Chart("Bandwidth over message size", how, "bandwidth", lines["bandwidth"], short_size, rate_tick)
    if "latency" in lines:
        how = "half of there and back, both ends polling, loopback"
        drawn["latency"] = Chart("Latency over message size", how, "one way", lines["latency"], short_size, time_tick)
    relative = against_tcp(lines.get("bandwidth", {}))
    if relative:
        how = "bandwidth of each, divided by that of TCP at the same size"
        drawn["relative"] = Chart("Bandwidth against TCP", how, "times TCP", relative, short_size, "{:g} x".format)
    return drawn


def sockets(rows):
    lines, drawn = lines_of(rows), {}
    if "passthrough" in lines:
        how = "time with librddp_sockets.so loaded, divided by the time without; plain TCP sockets, loopback"
        drawn["passthrough"] = Chart("What the library costs plain sockets", how, "with / without", lines["passthrough"],
                                     short_size, "{:.3f}".format, log_y=False, around=1.0)
    of_ddpmode = {
        "ddpmode-latency": ("Latency over message size, TCP and DDPMODE", "half of there and back, loopback", time_tick),
        "ddpmode-bandwidth": ("Bandwidth over message size, TCP and DDPMODE", "windows of messages answered by one octet, loopback",
                              rate_tick),
        "ddpmode-added": ("What DDPMODE adds to TCP's latency", "half of there and back; the report: other machines, in 2005",
                          time_tick),
    }
    for name, (title, how, tick) in of_ddpmode.items():
        if name in lines:
            drawn[name] = Chart(title, how, "bandwidth" if tick is rate_tick else "one way", lines[name], short_size, tick)
    return drawn


def against_tcp(lines):
    tcp = dict(map(tuple, lines.get("TCP", [])))
    if not tcp:
        return {}
    return {name: [(size, value / tcp[size]) for size, value in points if size in tcp] for name, points in lines.items()}


def short_size(size):
    return size_name(size).replace(" octets", " B").replace(" octet", " B")


def rate_tick(value):
    return f"{value / 1e9:g} GB/s" if value >= 1e9 else f"{value / 1e6:g} MB/s"


def time_tick(value):
    return f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"

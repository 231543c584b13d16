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
        how = ("one connection, loopback; TCP and rddp: up to 16 messages or 256 KiB by a call; "
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


def sdp(rows):
    """Returns a chart of each kind for each number of connections, in the order of the figures."""
    kinds = {
        "sdp-latency-polling": ("Latency, polling", "half of there and back, each end on a processor of its own", "one way", time_tick),
        "sdp-latency-blocking": ("Latency, blocking", "half of there and back, both ends on one processor", "one way", time_tick),
        "sdp-bandwidth": ("Bandwidth", "one way, blocking calls, a thread for each connection, CRC off", "bandwidth", rate_tick),
        "sdp-cpu": ("Processor time", "of both ends together, for a GB; blocking calls, CRC off", "seconds for a GB", "{:g} s".format),
        "sdp-copies": ("Copies an octet", "in the kernel, and from memory to memory of either end", "copies", "{:g}".format),
        "iperf": ("iperf", "one way, iperf's own figure, CRC on", "bandwidth", rate_tick),
    }
    lines, drawn = lines_of(rows), {}
    for name in sorted(lines, key=lambda name: [name.startswith(kind) for kind in kinds].index(True)):
        kind = next(kind for kind in kinds if name.startswith(kind))
        title, how, y_title, tick = kinds[kind]
        count = name.removeprefix(kind).lstrip("-")
        title += f", {count} connection{'s' if count != '1' else ''}" if count else ""
        drawn[name] = Chart(title, how, y_title, lines[name], short_size, tick)
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

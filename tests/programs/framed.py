#!/usr/bin/env python3
"""Checks that all connections in a capture began as iWARP: framed.py CAPTURE PORTS WAY [MARKERS]

CAPTURE has the SYN of each connection, and segments that begin as MPA's startup frames do. PORTS
has a server's port a line. RFC 5044 section 7.1: the initiator sends its Request first, the
responder answers with a Reply. Where WAY is sdp, both hold private data of SDP: the Hello and the
HelloAck, which are longer than RFC 6581's four octets. With MARKERS both ends ask for markers, and
without neither does. Prints how many there were; the exit status is 1 when one was something else,
or when there were none.
"""

import subprocess
import sys

REQUEST = b"MPA ID Req Frame".hex()
REPLY = b"MPA ID Rep Frame".hex()
# Octets before the private data, the enhanced form's own four, and the least length of SDP's: that
# of the compact Hello.
SDP_LEAST = 2 * (20 + 4 + 34)
FIELDS = ["tcp.srcport", "tcp.dstport", "tcp.flags.syn", "tcp.payload"]


def segments(capture):
    command = ["tshark", "-r", capture, "-T", "fields", "-E", "separator=,"]
    command += [word for field in FIELDS for word in ("-e", field)]
    # tshark decodes TCP only; its payload is looked at here.
    command += ["-o", "tcp.desegment_tcp_streams:FALSE", "--disable-protocol", "iwarp_mpa"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return [line.split(",") for line in told.splitlines()]


def asks_for_markers(payload):
    # The octet behind the key, whose first bit is M.
    return int(payload[len(REQUEST):][:2] or "0", 16) & 0x80 != 0


def main(capture, ports, way, markers=""):
    least = SDP_LEAST if way == "sdp" else 0
    ports = set(open(ports).read().split())
    opened, requested, answered = set(), set(), set()
    for source, destination, syn, payload in segments(capture):
        if syn in ("1", "True") and destination in ports:
            opened.add((source, destination))
        elif len(payload) < least or asks_for_markers(payload) != bool(markers):
            continue
        elif payload.startswith(REQUEST):
            requested.add((source, destination))
        elif payload.startswith(REPLY):
            answered.add((destination, source))
    plain = opened - (requested & answered)
    print(f"{len(opened)} connections, {len(opened) - len(plain)} of them framed")
    if plain or not opened:
        print(f"of {len(opened)} connections {len(opened - requested)} without a Request, "
              f"{len(opened - answered)} without a Reply", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

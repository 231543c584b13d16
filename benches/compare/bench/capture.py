"""Counts TCP segments that begin with an FPDU, in a capture. Reads pcap and walks FPDUs by
itself (RFC 5044 §4)."""

import struct
from dataclasses import dataclass

REQUEST = b"MPA ID Req Frame"
REPLY = b"MPA ID Rep Frame"
# Length of a startup frame before its private data.
FRAME = 20


@dataclass
class Count:
    segments: int
    aligned: int
    fpdus: int
    # Number of segments behind octets that the capture does not have.
    missing: int

    @property
    def share(self):
        return self.aligned / self.segments if self.segments else 0.0


def packets(path):
    """Yields the frames of a pcap file."""
    data = path.read_bytes()
    magic = data[:4]
    order = "<" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        kept = struct.unpack_from(order + "I", data, at + 8)[0]
        yield data[at + 16:at + 16 + kept]
        at += 16 + kept


def segments(path):
    """Yields (flow, sequence number, payload) of each IPv4 TCP segment with payload on Ethernet."""
    for frame in packets(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip = frame[14:]
        header, total = (ip[0] & 15) * 4, struct.unpack_from("!H", ip, 2)[0]
        source, target, sequence = struct.unpack_from("!HHI", ip, header)
        payload = ip[header + (ip[header + 12] >> 4) * 4:total]
        if payload:
            yield (source, target), sequence, payload


def count(path, initiator=True):
    """Counts segments in the stream of the MPA initiator, after its Request, or of the responder,
    after its Reply."""
    return count_stream(stream_behind(path, REQUEST if initiator else REPLY))


def initiators(path):
    """Returns the MPA initiator's stream: payload by its offset from the Request on."""
    return stream_behind(path, REQUEST)


def stream_behind(path, startup):
    """Returns the stream that a startup frame begins: payload by its offset from there on."""
    flow, first, stream = None, 0, {}
    for of, sequence, payload in segments(path):
        if flow is None and payload.startswith(startup):
            flow, first = of, sequence
        if of == flow:
            # A retransmission counts as one segment, at the place where it began first.
            stream.setdefault((sequence - first) % (1 << 32), payload)
    if flow is None:
        raise ValueError("no startup frame in the capture")
    return stream


def count_stream(stream):
    """Counts segments in `stream`, which has payload by its offset from the Request on."""
    octets, missing = join(stream)
    starts, fpdus = fpdu_starts(octets)
    ours = [offset for offset in stream if starts.start <= offset < len(octets)]
    return Count(len(ours), sum(offset in fpdus for offset in ours), len(fpdus), missing)


def join(stream):
    """Returns the octets up to the first that are missing, and the number of segments behind
    those."""
    octets = bytearray()
    rest = sorted(stream.items())
    for number, (offset, payload) in enumerate(rest):
        if offset > len(octets):
            return octets, len(rest) - number
        octets[offset:offset + len(payload)] = payload
    return octets, 0


def fpdu_starts(octets):
    """Returns the range of full operation, and the offsets at which FPDUs begin in it (without
    markers)."""
    private_data = struct.unpack_from("!H", octets, FRAME - 2)[0]
    at = FRAME + private_data
    full_operation, starts = range(at, len(octets)), set()
    while at + 2 <= len(octets):
        starts.add(at)
        ulpdu_length = struct.unpack_from("!H", octets, at)[0]
        # Length, ULPDU and pad fill up words; then the CRC.
        at += (2 + ulpdu_length + 3) // 4 * 4 + 4
    return full_operation, starts

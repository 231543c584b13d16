"""A second reading of the RFCs: decodes frames into fields, and captures into streams.

Nothing here is shared with the Rust crates; it is what Wireshark's dissector is compared with, and
what stands in for it where it is known to be wrong.
"""

import struct

MARKER_SPACING, MARKER_LEN, CRC_LEN, LENGTH_LEN = 512, 4, 4, 2
REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
STARTUP_LEN, PREFIX_LEN = 20, 4

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE, IMMEDIATE, \
    IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE = range(12)
FETCH_ADD, CMP_SWAP = 0, 2


class Wrong(Exception):
    """The error that octets are not what an RFC allows."""


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    """Returns RFC 3720's CRC32C; on the wire its least significant octet comes first
    (RFC 5044 section 4.4)."""
    value = 0xFFFFFFFF
    for octet in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ octet) & 0xFF]
    return value ^ 0xFFFFFFFF


def number(octets):
    return int.from_bytes(octets, "big")


def numbers(octets, *named_lengths):
    """Returns consecutive big-endian numbers: numbers(b"..", ("stag", 4), ("to", 8))."""
    fields, at = {}, 0
    for name, length in named_lengths:
        if at + length > len(octets):
            raise Wrong(f"too short for {name}")
        fields[name] = number(octets[at:at + length])
        at += length
    return fields


def decode_startup(frame, key):
    """Decodes a Request or Reply: RFC 5044 section 7.1.1, RFC 6581 section 6."""
    if frame[:16] != key:
        raise Wrong(f"key {frame[:16]!r}")
    flags, rev, pd_length = struct.unpack(">BBH", frame[16:STARTUP_LEN])
    if len(frame) != STARTUP_LEN + pd_length:
        raise Wrong(f"private data of {len(frame) - STARTUP_LEN} octets, announced {pd_length}")
    fields = {"m": flags >> 7, "c": flags >> 6 & 1, "r": flags >> 5 & 1, "s": flags >> 4 & 1,
              "reserved": flags & 0xF, "rev": rev, "pd_length": pd_length}
    private = frame[STARTUP_LEN:]
    if rev == 2 and fields["s"]:
        first, second = struct.unpack(">HH", private[:PREFIX_LEN])
        fields |= {"peer_to_peer": first >> 15, "rtr_send": first >> 14 & 1, "ird": first & 0x3FFF,
                   "rtr_write": second >> 15, "rtr_read": second >> 14 & 1, "ord": second & 0x3FFF}
        private = private[PREFIX_LEN:]
    return fields | {"private_data": private.hex()}


def split_markers(fpdu, position):
    """Returns the FPDU without its markers, and each marker's FPDUPTR: RFC 5044 section 4.3."""
    rest, pointers, at = b"", [], 0
    start = MARKER_LEN if position % MARKER_SPACING == 0 else 0
    while at < len(fpdu):
        if (position + at) % MARKER_SPACING == 0:
            reserved, pointer = struct.unpack(">HH", fpdu[at:at + MARKER_LEN])
            wanted = at - start if at else 0
            if reserved or pointer != wanted:
                raise Wrong(f"marker {reserved:#x} {pointer} at octet {at}, should be 0 {wanted}")
            pointers.append(pointer)
            at += MARKER_LEN
        end = min(len(fpdu), at + MARKER_SPACING - (position + at) % MARKER_SPACING)
        rest += fpdu[at:end]
        at = end
    return rest, pointers


def decode_fpdu(fpdu, position, markers, crc):
    """Decodes one FPDU that begins at this octet of its direction's FPDU stream."""
    plain, pointers = split_markers(fpdu, position) if markers else (fpdu, [])
    length = number(plain[:LENGTH_LEN])
    pad = -(LENGTH_LEN + length) % 4
    if len(plain) != LENGTH_LEN + length + pad + CRC_LEN:
        raise Wrong(f"ULPDU_Length {length} in an FPDU of {len(plain)} octets")
    if any(plain[LENGTH_LEN + length:-CRC_LEN]):
        raise Wrong("pad that is not zero")
    field = plain[-CRC_LEN:]
    # RFC 5044 section 4.4: the CRC covers everything before it, markers too.
    wanted = crc32c(fpdu[:-CRC_LEN]).to_bytes(4, "little") if crc else bytes(CRC_LEN)
    if field != wanted:
        raise Wrong(f"CRC field {field.hex()}, should be {wanted.hex()}")
    fields = {"ulpdu_length": length, "pad": pad, "markers": pointers, "crc": number(field) if crc else None}
    return fields | decode_ulpdu(plain[LENGTH_LEN:LENGTH_LEN + length])


def decode_ulpdu(ulpdu):
    """Decodes DDP and RDMAP: RFC 5041 section 4, RFC 5040 section 4, RFC 7306."""
    ddp, rdmap = ulpdu[0], ulpdu[1]
    fields = {"tagged": ddp >> 7, "last": ddp >> 6 & 1, "reserved": ddp >> 2 & 0xF, "dv": ddp & 3,
              "rv": rdmap >> 6, "rdmap_reserved": rdmap >> 4 & 3, "opcode": rdmap & 0xF}
    if fields["tagged"]:
        fields |= numbers(ulpdu[2:], ("stag", 4), ("to", 8))
        return fields | {"payload": ulpdu[14:].hex()}
    invalidates = fields["opcode"] in (SEND_INVALIDATE, SEND_SE_INVALIDATE)
    fields |= numbers(ulpdu[2:], ("inval_stag" if invalidates else "ulp_reserved", 4), ("qn", 4), ("msn", 4),
                      ("mo", 4))
    return fields | decode_message(fields["opcode"], ulpdu[18:])


def decode_message(opcode, body):
    """Decodes the octets behind the header of an untagged segment."""
    if opcode == READ_REQUEST:
        return exactly(body, 28) | numbers(body, ("sink_stag", 4), ("sink_to", 8), ("read_size", 4),
                                           ("src_stag", 4), ("src_to", 8))
    if opcode == TERMINATE:
        return decode_terminate(body)
    if opcode == ATOMIC_REQUEST:
        return exactly(body, 52) | decode_atomic(body)
    if opcode == ATOMIC_RESPONSE:
        return exactly(body, 12) | numbers(body, ("request_id", 4), ("original", 8))
    if opcode in (IMMEDIATE, IMMEDIATE_SE):
        return exactly(body, 8) | {"payload": body.hex()}
    return {"payload": body.hex()}


def exactly(body, length):
    if len(body) != length:
        raise Wrong(f"{len(body)} octets where this message has {length}")
    return {}


def decode_atomic(body):
    """Decodes an atomic: RFC 7306 section 5.2.1. A FetchAdd has fixed values where a CmpSwap has
    those to compare with."""
    fields = numbers(body, ("atomic_op", 4), ("request_id", 4), ("remote_stag", 4), ("remote_to", 8))
    names = ("add_data", "add_mask") if fields["atomic_op"] == FETCH_ADD else ("swap_data", "swap_mask")
    fields |= numbers(body[20:], (names[0], 8), (names[1], 8), ("compare_data", 8), ("compare_mask", 8))
    if fields["atomic_op"] == FETCH_ADD and (fields["compare_data"], fields["compare_mask"]) != (0, 2**64 - 1):
        raise Wrong("a FetchAdd that compares")
    return fields


def decode_terminate(body):
    """Decodes a Terminate: RFC 5040 section 4.8: control, then the headers that HdrCt names."""
    layer, etype, ecode, control = body[0] >> 4, body[0] & 0xF, body[1], body[2]
    fields = {"layer": layer, "etype": etype, "ecode": ecode, "hdrct_m": control >> 7, "hdrct_d": control >> 6 & 1,
              "hdrct_r": control >> 5 & 1, "terminate_reserved": (control & 0x1F) << 8 | body[3]}
    rest = body[4:]
    if fields["hdrct_m"]:
        fields["ddp_seg_len"], rest = number(rest[:2]), rest[2:]
    if fields["hdrct_d"]:
        length = 14 if rest[0] & 0x80 else 18
        fields["terminated_ddp"], rest = rest[:length].hex(), rest[length:]
    if fields["hdrct_r"]:
        fields["terminated_rdmap"], rest = rest[:28].hex(), rest[28:]
    if rest:
        raise Wrong(f"{len(rest)} octets too many in a Terminate")
    return fields


# Captures: classic pcap; Ethernet or raw IP; IPv4 or IPv6; TCP.

ETHERNET, RAW_IP = 1, 101


def segments(path):
    """Yields each TCP segment that carries payload or opens a connection: (source, destination,
    sequence, SYN, data)."""
    with open(path, "rb") as file:
        capture = file.read()
    magic = capture[:4]
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<",
             b"\xa1\xb2\x3c\x4d": ">"}.get(magic)
    if order is None:
        raise Wrong(f"{path}: not a classic pcap file")
    link = struct.unpack(order + "I", capture[20:24])[0]
    at = 24
    while at + 16 <= len(capture):
        length = struct.unpack(order + "I", capture[at + 8:at + 12])[0]
        packet = capture[at + 16:at + 16 + length]
        at += 16 + length
        if link == ETHERNET:
            packet = packet[14:]
        elif link != RAW_IP:
            raise Wrong(f"{path}: link type {link}")
        segment = tcp_segment(packet)
        if segment:
            yield segment


def tcp_segment(packet):
    if packet[0] >> 4 == 4 and packet[9] == 6:
        start, end, addresses = (packet[0] & 0xF) * 4, number(packet[2:4]), (packet[12:16], packet[16:20])
    elif packet[0] >> 4 == 6 and packet[6] == 6:
        start, end, addresses = 40, 40 + number(packet[4:6]), (packet[8:24], packet[24:40])
    else:
        return None
    tcp = packet[start:end]
    ports, sequence, flags = (tcp[0:2], tcp[2:4]), number(tcp[4:8]), tcp[13]
    data = tcp[(tcp[12] >> 4) * 4:]
    ends = [address + port for address, port in zip(addresses, ports)]
    return (*ends, sequence, bool(flags & 2), data) if data or flags & 2 else None


def streams(path):
    """Returns the connections, in the order of their first segment: (octets of the initiator,
    octets of the responder)."""
    connections = {}
    for source, destination, sequence, syn, data in segments(path):
        halves = connections.setdefault(frozenset((source, destination)), {})
        half = halves.setdefault(source, {"base": (sequence + syn) & 0xFFFFFFFF, "pieces": {}})
        if data:
            offset = (sequence + syn - half["base"]) & 0xFFFFFFFF
            known = half["pieces"].get(offset, b"")
            half["pieces"][offset] = max(known, data, key=len)
    result = []
    for halves in connections.values():
        octets = [join(half["pieces"]) for half in halves.values()]
        octets.sort(key=lambda half: not half.startswith(REQUEST_KEY))
        result.append((octets[0], octets[1] if len(octets) > 1 else b""))
    return result


def join(pieces):
    octets = b""
    for offset in sorted(pieces):
        if offset > len(octets):
            raise Wrong(f"octets {len(octets)} to {offset} of a direction are not in the capture")
        octets += pieces[offset][len(octets) - offset:] if offset < len(octets) else pieces[offset]
    return octets


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


class Capture:
    """Writes a capture of made-up TCP connections; `packets` counts the packets written."""

    MOST_OCTETS = 65535 - 40  # of one segment, in IPv4

    def __init__(self, path):
        self.file = open(path, "wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, ETHERNET))
        self.packets = 0

    def close(self):
        self.file.close()

    def packet(self, source, destination, sequence, acknowledgement, flags, data=b""):
        addresses = source[0] + destination[0]
        tcp = struct.pack(">HHIIBBHHH", source[1], destination[1], sequence & 0xFFFFFFFF,
                          acknowledgement & 0xFFFFFFFF, 0x50, flags, 65535, 0, 0)
        pseudo = addresses + struct.pack(">BBH", 0, 6, len(tcp) + len(data))
        tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp + data)) + tcp[18:]
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), self.packets & 0xFFFF, 0x4000, 64, 6, 0)
        ip = ip[:10] + struct.pack(">H", checksum(ip + addresses)) + addresses
        frame = bytes(12) + b"\x08\0" + ip + tcp + data
        self.packets += 1
        self.file.write(struct.pack("<IIII", self.packets, 0, len(frame), len(frame)) + frame)
        return self.packets


class Connection:
    """A connection in the capture, open from the start. `send` puts octets into a segment of their
    own and returns its packet's number."""

    def __init__(self, capture, port, first_sequences=(0, 0)):
        self.capture = capture
        self.ends = (b"\x0a\0\0\1", port), (b"\x0a\0\0\2", 7174)
        self.next = list(first_sequences)
        for end, flags in (0, 0x02), (1, 0x12):
            capture.packet(self.ends[end], self.ends[1 - end], self.next[end] - 1, self.next[0] * end, flags)
        capture.packet(*self.ends, self.next[0], self.next[1], 0x10)

    def send(self, end, data):
        number = self.capture.packet(self.ends[end], self.ends[1 - end], self.next[end], self.next[1 - end], 0x18, data)
        self.next[end] += len(data)
        return number

    def skip(self, end, octets):
        """Skips octets, as if they had been lost."""
        self.next[end] += octets


def startup_frame(key, markers, crc):
    return key + struct.pack(">BBH", markers << 7 | crc << 6, 1, 0)

#!/usr/bin/env python3
"""Compares a capture with what its sender meant: check.py CAPTURE.pcap EXPECT.json

README.md has the format of EXPECT.json. Each frame is checked three times: its octets are those in
the capture; read by hand (iwarp.py) they have the fields meant; and Wireshark's dissectors (tshark)
name the same values. Prints a line for each difference, then a summary. Exit status 0 without
differences, 1 with, 2 when it could not be checked.

Where the dissectors (seen in Wireshark 4.0) fall short, and what is done instead:

- They find markers only when a segment holds one FPDU from its start, and a pad before a marker
only when the first FPDU's sequence number is a multiple of 512. So tshark is given the same octets
in segments and with sequence numbers of our own.
- They take both directions to have markers when either has. So tshark sees each direction as a
connection of its own, opened with startup frames that ask for markers, and for CRC, exactly if
this direction has them.
- They see a marker too many in an FPDU that ends exactly at a multiple of 512 octets, and lose the
FPDUs behind it: such an FPDU is read by hand only, and the next begins a connection of its own
(markers are where they were: 512 later).
- They know nothing of RFC 6581. The S bit is "Reserved" and warned of, revision 2 also, and the
four octets of IRD, ORD and flags are private data: these are read by hand, and the warnings
expected. A Reply that rejects has a note.
- They do not know Immediate Data (opcodes 8 and 9): the headers are compared, the
eight octets read by hand.
- They do not name what a Terminate of layer 0, type 0 has as its code, and take every DDP header in
a Terminate of layer 0 for a tagged one: read by hand.
- They try RPC and SMB on what a Send carries, and call small ones malformed: both are switched off.
- An FPDU larger than a segment of IPv4 can be is read by hand only.
"""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import iwarp

DIRECTIONS = {"i2r": 0, "r2i": 1}
FRAMES = {"request": iwarp.REQUEST_KEY, "reply": iwarp.REPLY_KEY, "fpdu": None}

# Fields that follow from the octets, or are zero unless something is wrong:
# EXPECT.json may leave them out.
DERIVED = {"ulpdu_length", "pad", "markers", "crc", "pd_length", "payload"}
ZERO = {"reserved", "rdmap_reserved", "ulp_reserved", "terminate_reserved"}
FIXED = {"dv": 1, "rv": 1}

KNOWN_WARNINGS = {"iwarp_mpa.res.not_set0", "iwarp_mpa.rev.not_set1", "iwarp_mpa.reject_bit_responder"}


class Report:
    """Counts the comparisons and prints the differences."""

    def __init__(self):
        self.compared = self.differences = self.by_hand_only = 0

    def same(self, where, what, got, wanted):
        self.compared += 1
        if got != wanted:
            self.differ(f"{where}: {what} is {show(got)}, meant {show(wanted)}")

    def differ(self, text):
        self.differences += 1
        print(text)


def show(value):
    return f"{value:#x}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)


class Connection:
    """The frames of one connection, in the order in which EXPECT.json has them."""

    def __init__(self, frames):
        self.frames = frames
        startup = {frame["frame"]: frame["fields"] for frame in frames if frame["frame"] != "fpdu"}
        request, reply = startup.get("request", {}), startup.get("reply", {})
        # RFC 5044 section 7.1: M is what an end wants to receive; CRC is used when either end wants
        # it.
        self.markers = {"i2r": bool(reply.get("m")), "r2i": bool(request.get("m"))}
        self.crc = bool(request.get("c") or reply.get("c"))

    def fpdus(self, direction):
        return [frame for frame in self.frames if frame["frame"] == "fpdu" and frame["dir"] == direction]


def load(path):
    """Returns the connections of EXPECT.json, by their number, with octets in place of hex and a
    name for each frame."""
    with open(path, encoding="utf-8") as file:
        frames = json.load(file)
    connections = {}
    for place, frame in enumerate(frames):
        if frame["dir"] not in DIRECTIONS or frame["frame"] not in FRAMES:
            raise ValueError(f"frame {place}: dir {frame['dir']!r}, frame {frame['frame']!r}")
        frame["octets"] = bytes.fromhex(frame["hex"])
        name = frame.get("name", f"{frame['dir']} {frame['frame']} at {frame['stream_pos']}")
        frame["where"] = f"[{place}] {name}"
        connections.setdefault(frame.get("connection", 0), []).append(frame)
    return {number: Connection(frames) for number, frames in connections.items()}


def check_streams(report, connections, captured):
    """Checks that the capture holds these frames, one after another, and no octet more."""
    report.same("capture", "the number of connections", len(captured), len(connections))
    for number, connection in connections.items():
        for direction, end in DIRECTIONS.items():
            stream = captured[number][end] if number < len(captured) else b""
            check_stream(report, connection, direction, stream)


def check_stream(report, connection, direction, stream):
    at, position = 0, 0
    for frame in connection.frames:
        if frame["dir"] != direction:
            continue
        octets = frame["octets"]
        report.same(frame["where"], "what the capture has", stream[at:at + len(octets)].hex(), octets.hex())
        at += len(octets)
        if frame["frame"] == "fpdu":
            report.same(frame["where"], "stream_pos", position, frame["stream_pos"])
            position += len(octets)
    report.same(direction, "the number of octets in the capture", len(stream), at)


def read_by_hand(connection, frame):
    if frame["frame"] == "fpdu":
        return iwarp.decode_fpdu(frame["octets"], frame["stream_pos"], connection.markers[frame["dir"]], connection.crc)
    return iwarp.decode_startup(frame["octets"], FRAMES[frame["frame"]])


def check_fields(report, connection):
    """Checks that every field that was meant is there, and that every field that is there was
    meant."""
    for frame in connection.frames:
        meant = dict(frame["fields"])
        try:
            frame["read"] = read = read_by_hand(connection, frame)
        except (iwarp.Wrong, IndexError, ValueError) as error:
            frame["read"] = None
            report.differ(f"{frame['where']}: {error}")
            continue
        if "payload_len" in meant:
            report.same(frame["where"], "payload_len", len(read.get("payload", "")) // 2, meant.pop("payload_len"))
        for name in read.keys() | meant.keys():
            if name in meant:
                report.same(frame["where"], name, read.get(name), meant[name])
            elif name in ZERO or name in FIXED:
                report.same(frame["where"], name, read[name], FIXED.get(name, 0))
            elif name not in DERIVED:
                report.differ(f"{frame['where']}: its fields do not say what {name} was meant to be")


def rewrite(connections, path):
    """Writes the same frames so that tshark can read them, one to a packet. Returns
    {packet number: frame}."""
    capture, packets, port = iwarp.Capture(path), {}, 40000
    for connection in connections.values():
        rewritten = iwarp.Connection(capture, port)
        port += 1
        for frame in connection.frames:
            if frame["frame"] != "fpdu":
                packets[rewritten.send(DIRECTIONS[frame["dir"]], frame["octets"])] = frame
        for direction in DIRECTIONS:
            more, port = rewrite_direction(capture, port, connection, direction)
            packets |= more
    capture.close()
    return packets


def rewrite_direction(capture, port, connection, direction):
    """Writes frames as connections from this port on; a new one begins where markers would be
    misread."""
    markers, end = connection.markers[direction], DIRECTIONS[direction]
    startup = [iwarp.startup_frame(key, markers, connection.crc) for key in (iwarp.REQUEST_KEY, iwarp.REPLY_KEY)]
    first = iwarp.MARKER_SPACING - len(startup[0])
    rewritten, packets = None, {}
    for frame in connection.fpdus(direction):
        if not rewritten:
            rewritten = iwarp.Connection(capture, port, (first, first))
            port += 1
            for side, octets in enumerate(startup):
                rewritten.send(side, octets)
        if not too_much_for_tshark(connection, frame):
            packets[rewritten.send(end, frame["octets"])] = frame
        elif markers and ends_at_marker(frame):
            rewritten = None
        else:
            rewritten.skip(end, len(frame["octets"]))
    return packets, port


def ends_at_marker(frame):
    return (frame["stream_pos"] + len(frame["octets"])) % iwarp.MARKER_SPACING == 0


def too_much_for_tshark(connection, frame):
    """Returns whether rewrite() leaves a frame out."""
    return frame["frame"] == "fpdu" and (len(frame["octets"]) > iwarp.Capture.MOST_OCTETS or
                                         connection.markers[frame["dir"]] and ends_at_marker(frame))


def dissect(path):
    """Returns tshark's fields of each packet: {number: {name: [(show, showname), ...]}}."""
    command = ["tshark", "-r", path, "-T", "pdml", "-o", "tcp.try_heuristic_first:TRUE",
               "-o", "tcp.relative_sequence_numbers:FALSE",
               "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    packets = {}
    for number, packet in enumerate(xml.etree.ElementTree.fromstring(result.stdout).iter("packet"), 1):
        fields = packets.setdefault(number, {})
        for item in packet.iter():
            if item.tag in ("field", "proto"):
                fields.setdefault(item.get("name"), []).append((item.get("show"), item.get("showname")))
    return packets


def as_number(text):
    if text in ("True", "False"):
        return int(text == "True")
    if ":" in text:
        return int(text.replace(":", ""), 16)
    return int(text, 0)


def startup_names(frame, read):
    key = "req" if frame["frame"] == "request" else "rep"
    yield f"iwarp_mpa.key.{key}", FRAMES[frame["frame"]].hex()
    for name, meant in (("marker_flag", "m"), ("crc_flag", "c"), ("rej_flag", "r"), ("rev", "rev"),
                        ("pdlength", "pd_length")):
        yield f"iwarp_mpa.{name}", read[meant]
    if read["pd_length"]:
        yield "iwarp_mpa.privatedata", frame["octets"][iwarp.STARTUP_LEN:].hex()


def header_names(read):
    for name, meant in (("tagged_flag", "tagged"), ("last_flag", "last"), ("dv", "dv"), ("rsvd", "reserved")):
        yield f"iwarp_ddp.{name}", read[meant]
    for name, meant in (("version", "rv"), ("rsv", "rdmap_reserved"), ("opcode", "opcode")):
        yield f"iwarp_rdma.{name}", read[meant]
    layer = (("stag", "stag"), ("tagged_offset", "to")) if read["tagged"] else (("qn", "qn"), ("msn", "msn"), ("mo", "mo"))
    for name, meant in layer:
        yield f"iwarp_ddp.{name}", read[meant]
    if "inval_stag" in read:
        yield "iwarp_rdma.inval_stag", read["inval_stag"]


def terminate_names(read):
    layer, etype = read["layer"], read["etype"]
    yield "iwarp_rdma.term_layer", layer
    yield "iwarp_rdma.term_etype_" + ("rdma", "ddp", "llp")[layer], etype
    if (layer, etype) != (0, 0):
        kind = {0: "rdma", 1: {1: "ddp_tagged", 2: "ddp_untagged"}.get(etype), 2: "llp"}[layer]
        yield "iwarp_rdma.term_errcode" + (f"_{kind}" if kind else ""), read["ecode"]
    yield "iwarp_rdma.term_hdrct_m", read["hdrct_m"]
    yield "iwarp_rdma.hdrct_d", read["hdrct_d"]
    yield "iwarp_rdma.hdrct_r", read["hdrct_r"]
    if "ddp_seg_len" in read:
        yield "iwarp_rdma.term_ddp_seg_len", f"{read['ddp_seg_len']:04x}"
    if "terminated_ddp" in read and (layer != 0 or len(read["terminated_ddp"]) == 2 * 14):
        yield "iwarp_rdma.term_ddp_h", read["terminated_ddp"]


def message_names(read):
    if read["opcode"] == iwarp.READ_REQUEST:
        for name, meant in (("sinkstag", "sink_stag"), ("sinkto", "sink_to"), ("rdmardsz", "read_size"),
                            ("srcstag", "src_stag"), ("srcto", "src_to")):
            yield f"iwarp_rdma.{name}", read[meant]
    elif read["opcode"] == iwarp.TERMINATE:
        yield from terminate_names(read)
    elif read["opcode"] == iwarp.ATOMIC_REQUEST:
        for name, meant in (("opcode", "atomic_op"), ("request_identifier", "request_id"),
                            ("remote_stag", "remote_stag"), ("remote_tagged_offset", "remote_to")):
            yield f"iwarp_rdma.atomic.{name}", read[meant]
        for name in ("add_data", "add_mask", "swap_data", "swap_mask", "compare_data", "compare_mask"):
            if name in read:
                yield f"iwarp_rdma.atomic.{name}", read[name]
    elif read["opcode"] == iwarp.ATOMIC_RESPONSE:
        yield "iwarp_rdma.atomic.original_request_identifier", read["request_id"]
        yield "iwarp_rdma.atomic.original_remote_data_value", read["original"]


def check_dissected(report, frame, dissected):
    """Checks that tshark names the values that were read by hand, and reports no error."""
    where, read = frame["where"] + " (tshark)", frame["read"]
    if frame["frame"] == "fpdu":
        names = [("iwarp_mpa.ulpdulength", read["ulpdu_length"]), *header_names(read), *message_names(read)]
        check_framing(report, where, read, dissected)
    else:
        names = startup_names(frame, read)
    for name, wanted in names:
        got = [text for text, _ in dissected.get(name, [])]
        if len(got) != 1:
            report.differ(f"{where}: {name} {len(got)} times, meant {show(wanted)}")
            continue
        value = as_number(got[0]) if isinstance(wanted, int) else got[0].replace(":", "")
        report.same(where, name, value, wanted)
    complaints = {name for name in dissected if name and (name.startswith("_ws.malformed") or
                  name.startswith("iwarp") and ("not_set" in name or "bad" in name or "reject_bit" in name))}
    report.same(where, "what the dissector complains of", complaints - KNOWN_WARNINGS, set())


def check_framing(report, where, read, dissected):
    """Checks pad, CRC and tshark's verdict on it (which is in the text of the field alone), and
    markers."""
    pad = dissected.get("iwarp_mpa.pad", [("", "")])[0][0]
    report.same(where, "the pad", pad.replace(":", ""), "00" * read["pad"])
    pointers = [as_number(text) for text, _ in dissected.get("iwarp_mpa.marker_fpduptr", [])]
    report.same(where, "the markers", pointers, read["markers"])
    checks = dissected.get("iwarp_mpa.crc_check", [])
    if read["crc"] is None:
        report.same(where, "the number of CRCs checked", len(checks), 0)
        return
    report.same(where, "the CRC field", [as_number(text) for text, _ in checks], [read["crc"]])
    report.same(where, "the CRC's verdict", ["Good CRC32" in name for _, name in checks], [True])


def check_with_tshark(report, connections):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rewritten.pcap"
        packets = rewrite(connections, path)
        dissected = dissect(path)
    for number, frame in packets.items():
        if frame["read"] is not None:
            check_dissected(report, frame, dissected.get(number, {}))


def check(capture, expect):
    report, connections = Report(), load(expect)
    check_streams(report, connections, iwarp.streams(capture))
    for connection in connections.values():
        check_fields(report, connection)
        report.by_hand_only += sum(too_much_for_tshark(connection, frame) for frame in connection.frames)
    check_with_tshark(report, connections)
    frames = sum(len(connection.frames) for connection in connections.values())
    print(f"{len(connections)} connections, {frames} frames ({report.by_hand_only} of them without tshark), "
          f"{report.compared} comparisons, {report.differences} differences")
    return report


def main():
    if len(sys.argv) != 3:
        print(__doc__.split("\n", maxsplit=1)[0], file=sys.stderr)
        return 2
    try:
        return 1 if check(sys.argv[1], sys.argv[2]).differences else 0
    except (OSError, ValueError, KeyError, iwarp.Wrong, subprocess.CalledProcessError) as error:
        print(f"check.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares rddp's own decoder with what a sender meant, and with Wireshark's:

    decoded.py RDDP CAPTURE.pcap EXPECT.json

RDDP is the command. Each frame of EXPECT.json (README.md has its format) has to be in the output of
`rddp decode --json`, in order, with its fields, and no other. Where no direction has markers, which
tshark cannot follow (check.py says why), the number of FPDUs of each opcode has to be tshark's too.
Prints a line for each difference, then a summary. Exit status 0 without differences, 1 with.
"""

import collections
import json
import subprocess
import sys

# Fields of EXPECT.json, and their names in the output of `rddp decode`.
FPDU = {"opcode": "opcode", "last": "last", "stag": "stag", "to": "to", "qn": "qn", "msn": "msn", "mo": "mo",
        "inval_stag": "inval_stag", "sink_stag": "sink_stag", "sink_to": "sink_to", "read_size": "size",
        "src_stag": "src_stag", "src_to": "src_to", "request_id": "id", "remote_stag": "stag",
        "remote_to": "to", "original": "original"}
STARTUP = {"m": "markers", "c": "crc", "r": "rejected", "rev": "revision"}


def decoded(rddp, capture):
    """Returns the objects of `rddp decode`."""
    command = [rddp, "decode", "--json", capture]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def differences(objects, meant):
    """Yields what the decoder says otherwise than the sender."""
    ends = {}
    got = {"i2r": [], "r2i": []}
    for item in objects:
        if item["what"] == "startup":
            ends[item["source"]] = "i2r" if item["kind"] == "request" else "r2i"
        if item["what"] in ("startup", "fpdu"):
            got[ends[item["source"]]].append(item)
        if item["what"] == "problem":
            yield f"{item['source']}: {item['problem']}"
    for direction, found in got.items():
        wanted = [frame for frame in meant if frame["dir"] == direction]
        if len(wanted) != len(found):
            yield f"{direction}: {len(found)} frames, meant {len(wanted)}"
        for place, (item, frame) in enumerate(zip(found, wanted)):
            for name, has, wants in compared(item, frame):
                if has != wants:
                    yield f"{direction} [{place}]: {name} is {has}, meant {wants}"


def compared(item, frame):
    """Yields the fields that a frame has: name, value, the value that was meant."""
    is_fpdu = frame["frame"] == "fpdu"
    if is_fpdu:
        yield "position", item.get("position"), frame["stream_pos"]
    for name, value in frame["fields"].items():
        key = (FPDU if is_fpdu else STARTUP).get(name)
        if key:
            got = item.get(key)
            yield name, int(got) if isinstance(got, bool) else got, value


def tshark(capture):
    """Returns the number of FPDUs of each opcode, as tshark finds them."""
    command = ["tshark", "-r", capture, "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol", "rpcordma",
               "--disable-protocol", "smb_direct", "-T", "fields", "-e", "iwarp_rdma.opcode"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return collections.Counter(int(opcode, 0) for opcode in text.replace(",", "\n").split())


def main():
    rddp, capture, expect = sys.argv[1:]
    objects = decoded(rddp, capture)
    with open(expect, encoding="utf-8") as file:
        meant = json.load(file)
    faults = list(differences(objects, meant))
    opcodes = collections.Counter(item["opcode"] for item in objects if item["what"] == "fpdu")
    has_markers = any(item["markers"] for item in objects if item["what"] == "startup")
    if not has_markers and (counted := tshark(capture)) != opcodes:
        faults.append(f"FPDUs by opcode: {dict(opcodes)}, tshark counts {dict(counted)}")
    for fault in faults:
        print(fault)
    by_whom = "the sender" if has_markers else "the sender and tshark"
    print(f"decode: {sum(opcodes.values())} FPDUs as {by_whom} has them, {len(faults)} differences")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

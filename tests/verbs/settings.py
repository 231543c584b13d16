#!/usr/bin/env python3
"""Looks at the MPA Request that rping sends under each setting of a connection (RFC 5044 §7.1.1,
RFC 6581 §9): this script is the server. And at who sends first (RFC 5044 §7.1.2), and at the limits
that `rddp doctor` tells."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

# Variables or a line of a policy, and what the Request has: revision, markers, CRC, and, with
# revision 2, whether it is peer-to-peer, the kinds of RTR (send, write, read), IRD and ORD, of
# which rping asks for 1.
USUAL = dict(revision=2, markers=False, crc=True, peer=True, rtr="wr", ird=1, ord=1)
TRIES = [
    ({}, "", {}),
    ({"RDDP_VERBS_CRC": "0"}, "", dict(crc=False)),
    ({"RDDP_VERBS_MARKERS": "on"}, "", dict(markers=True)),
    ({"RDDP_VERBS_MPA": "1"}, "", dict(revision=1)),
    ({"RDDP_VERBS_PEER_TO_PEER": "off"}, "", dict(peer=False, rtr="")),
    ({"RDDP_VERBS_RTR": "send,read"}, "", dict(rtr="sr")),
    ({"RDDP_VERBS_IRD": "0"}, "verbs rping 127.0.0.0/8:* ird=6 ord=0", dict(ird=0, ord=0)),
    ({}, "verbs rping 192.0.2.0/24:* crc=off\nverbs fio *:* crc=off", {}),
]


def parse(frame):
    """The Request: key of 16 octets, flags, revision, length, and its data."""
    flags, revision, data = frame[16], frame[17], frame[20:]
    seen = dict(revision=revision, markers=bool(flags & 0x80), crc=bool(flags & 0x40))
    if revision == 2:
        ird, ord_ = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        kinds = [(ird & 0x4000, "s"), (ord_ & 0x8000, "w"), (ord_ & 0x4000, "r")]
        seen |= dict(peer=bool(ird & 0x8000), rtr="".join(name for bit, name in kinds if bit),
                     ird=ird & 0x3fff, ord=ord_ & 0x3fff)
    return seen


def request(environment):
    """Runs a client against a server that takes its Request and leaves."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        command = ["rping", "-c", "-a", "127.0.0.1", "-p", str(server.getsockname()[1]), "-C", "1"]
        client = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(20)
                return peer.recv(512)
        finally:
            client.kill()
            client.wait()


def speaks_first(environment):
    """Returns whether the server of ucmatose sends before its client has, which is this script,
    with a Request of revision 1 that asks for nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(["ucmatose", "-b", "127.0.0.1", "-p", str(port), "-c", "1"],
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                client = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.05)
        with client:
            client.sendall(b"MPA ID Req Frame" + bytes([0x40, 1, 0, 0]))
            client.settimeout(20)
            if client.recv(20, socket.MSG_WAITALL)[:16] != b"MPA ID Rep Frame":
                return None
            client.settimeout(2)
            try:
                return len(client.recv(1)) == 1
            except socket.timeout:
                return False
    finally:
        server.kill()
        server.wait()


def limits(library):
    """Returns the limits that programs see and `rddp doctor` does not tell."""
    rddp = library.with_name("rddp")
    seen = subprocess.run([rddp, "run", "--verbs", "--", "ibv_devinfo", "-v"], capture_output=True,
                          text=True).stdout
    number = {name: int(value, 0)
              for name, value in re.findall(r"^\s*(\w+):\s+(0x[0-9a-f]+|[0-9]+)\s*$", seen, re.M)}
    wanted = [f"{number['max_qp_rd_atom']} Reads and atomics in",
              f"{number['max_qp_init_rd_atom']} out", f"up to {number['max_msg_sz']} octets"]
    doctor = subprocess.run([rddp, "doctor", "--json"], capture_output=True, text=True).stdout
    told = [finding["value"] for finding in json.loads(doctor)["findings"]
            if (finding["topic"], finding["subject"]) == ("verbs", "limits")]
    return [limit for limit in wanted if limit not in "".join(told)]


def main():
    library, failed = pathlib.Path(sys.argv[1]).resolve(), 0
    if not shutil.which("rping") or not shutil.which("ibv_devinfo"):
        print("settings: missing rping or ibv_devinfo: install rdmacm-utils and ibverbs-utils")
        return 1
    for limit in limits(library):
        failed += 1
        print(f"settings: rddp doctor does not tell of {limit}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link in ("libibverbs.so.1", "librdmacm.so.1"):
            (folder / link).symlink_to(library)
        policy = folder / "policy"
        for variables, text, has in TRIES:
            policy.write_text(text + "\n")
            seen = parse(request(dict(os.environ, LD_LIBRARY_PATH=str(folder),
                                      RDDP_POLICY=str(policy), **variables)))
            wanted = {name: (USUAL | has)[name] for name in seen}
            if seen != wanted:
                failed += 1
                print(f"settings: {variables} {text!r}: the Request has {seen}, not {wanted}")
        for value in ("on", "off"):
            sends = speaks_first(dict(os.environ, LD_LIBRARY_PATH=str(folder),
                                      RDDP_VERBS_SPEAKS_FIRST=value))
            if sends is not (value == "on"):
                failed += 1
                print(f"settings: RDDP_VERBS_SPEAKS_FIRST={value}: sends first: {sends}")
    print(f"settings: {f'{failed} failed' if failed else 'each is seen in the MPA Request'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

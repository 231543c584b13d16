#!/usr/bin/env python3
"""Strangers at the port of a queue pair that is joined by numbers: neither what they say nor what
they leave unsaid keeps the peer away, or ends the program.

    strangers.py LIBRARY [SEED]

`ibv_rc_pingpong` (ibverbs-utils) is both ends, run by the `rddp` beside the library. Strangers come
by thousands, from the peer's address and from another one, before the peer does. Those who say
nothing are sent away in time, and few of the others wait.
"""

import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import time

AT, ELSEWHERE = "127.0.0.1", "127.0.0.2"
# Of each kind, from each address: together more than may wait for an answer at a time.
EACH = 600
# Descriptors of a process: those of the program and of the device, and of 512 hellos that wait at
# a port.
MOST = 512 + 100


def request(private_data):
    """Returns an MPA Request of revision 2 with CRC, IRD 8 and ORD 8 (RFC 6581 chapter 4)."""
    said = struct.pack(">HH", 8, 8) + private_data
    return b"MPA ID Req Frame" + struct.pack(">BBH", 0x50, 2, len(said)) + said


def hello(sender, receiver, version=4):
    return request(b"rdq" + struct.pack(">BIIII", version, sender, receiver, 0, 0))


def sayings(number, chance):
    """Returns what one stranger of each kind says to the queue pair with this number."""
    port = number >> 8
    whole = hello(port << 8 | 0xff, number)
    return {
        "nothing": b"",
        "octets at random": chance.randbytes(chance.randrange(1, 200)),
        "a Request with octets at random": request(chance.randbytes(chance.randrange(0, 60))),
        "a part of a hello": whole[:chance.randrange(1, len(whole))],
        "a hello of another version": hello(port << 8 | 0xff, number, 1),
        "a hello for no queue pair": hello(port << 8 | 0xff, port << 8 | 0xfe),
        "a hello of an unknown queue pair": whole,
        "octets behind a hello": whole + chance.randbytes(40),
    }


def come(number, chance):
    """Has strangers come. Returns their sockets, of which some stay open and silent."""
    sockets = []
    for _ in range(EACH):
        for said in sayings(number, chance).values():
            for source in (AT, ELSEWHERE):
                stranger = socket.socket()
                stranger.bind((source, 0))
                try:
                    stranger.connect((AT, number >> 8))
                    stranger.sendall(said)
                except OSError:
                    # The device closes what is too much.
                    pass
                if chance.random() < 0.25:
                    sockets.append(stranger)
                else:
                    stranger.close()
    return sockets


def await_few(process):
    """Waits until the program has no more descriptors than it may. Returns whether it has."""
    until = time.monotonic() + 60
    while (have := len(os.listdir(f"/proc/{process.pid}/fd"))) > MOST and time.monotonic() < until:
        time.sleep(0.1)
    return have <= MOST


def start(rddp, *words):
    command = ["stdbuf", "-oL", "ibv_rc_pingpong", "-g", "0", "-p", "18777", *words]
    return subprocess.Popen([rddp, "run", "--verbs", "--", *command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env=os.environ | {"RDDP_ROCE": f"mlx5_0={AT}"})


def main():
    rddp = pathlib.Path(sys.argv[1]).resolve().with_name("rddp")
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"strangers: seed {seed}")
    server = start(rddp)
    number = int(re.search(r"QPN 0x([0-9a-f]+)", server.stdout.readline()).group(1), 16)
    strangers = come(number, random.Random(seed))
    if not await_few(server):
        print(f"strangers: they keep more than {MOST} descriptors")
        server.kill()
        return 1
    began = time.monotonic()
    client = start(rddp, AT)
    try:
        ends = [end.communicate(timeout=60)[0] for end in (client, server)]
    except subprocess.TimeoutExpired:
        for end in (client, server):
            end.kill()
        print("strangers: the peer is kept away")
        return 1
    if client.returncode or server.returncode:
        print(f"strangers: {client.returncode}, {server.returncode}: {ends}")
        return 1
    print(f"strangers: the peer was there in {time.monotonic() - began:.1f} s, beside {len(strangers)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

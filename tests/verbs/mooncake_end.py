"""An end of a transfer by Mooncake's engine, whose octets are compared.

    mooncake_end.py target ADDRESS
    mooncake_end.py initiator ADDRESS PEER PLACE

The target prints its port and the place of its memory, and the sum of what was written there, once
for each line that it reads.
"""

import ctypes
import sys

from mooncake.engine import TransferEngine

LEN, STEP = 8 << 20, 4096


def main():
    role, address = sys.argv[1:3]
    octets = (ctypes.c_ubyte * LEN)()
    place = ctypes.addressof(octets)
    engine = TransferEngine()
    assert engine.initialize(address, "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
    assert engine.register_memory(place, LEN) == 0
    if role == "target":
        for at in range(0, LEN, STEP):
            octets[at] = at // STEP % 251
        print(engine.get_rpc_port(), place, flush=True)
        for _ in sys.stdin:
            print(sum(octets[LEN // 2:LEN:STEP]), flush=True)
        return
    peer, there = sys.argv[3], int(sys.argv[4])
    assert engine.transfer_sync_read(peer, place, there, LEN) == 0
    assert all(octets[at] == at // STEP % 251 for at in range(0, LEN, STEP)), "read"
    ctypes.memset(place, 7, LEN // 2)
    assert engine.transfer_sync_write(peer, place, there + LEN // 2, LEN // 2) == 0
    print("written", 7 * (LEN // 2 // STEP), flush=True)


main()

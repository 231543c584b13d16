"""An end of a transfer by NIXL, with its own UCX, whose octets are compared.

    nixl_end.py target|initiator ADDRESS PORT

ADDRESS and PORT are the target's.
"""

import ctypes
import sys
import time

from nixl._api import nixl_agent, nixl_agent_config

LEN, STEP = 4 << 20, 4096


def await_that(holds):
    while not (found := holds()):
        time.sleep(0.01)
    return found


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    octets = (ctypes.c_ubyte * LEN)()
    place = [(ctypes.addressof(octets), LEN, 0)]
    listens_at = port if role == "target" else 0
    agent = nixl_agent(role, nixl_agent_config(True, True, listens_at, backends=["UCX"]))
    agent.register_memory([(*place[0], "")], "DRAM")
    mine = agent.get_xfer_descs(place, "DRAM")
    if role == "target":
        for at in range(0, LEN, STEP):
            octets[at] = at // STEP % 251
        print("ready", flush=True)
        await_that(lambda: agent.check_remote_metadata("initiator"))
        agent.send_notif("initiator", agent.get_serialized_descs(mine))
        await_that(lambda: agent.check_remote_xfer_done("initiator", b"done"))
        return
    agent.fetch_remote_metadata("target", address, port)
    agent.send_local_metadata(address, port)
    theirs = agent.deserialize_descs(await_that(agent.get_new_notifs)["target"][0])
    await_that(lambda: agent.check_remote_metadata("target"))
    transfer = agent.initialize_xfer("READ", mine, theirs, "target", b"done")
    agent.transfer(transfer)
    assert await_that(lambda: agent.check_xfer_state(transfer) in ("DONE", "ERR"))
    assert agent.check_xfer_state(transfer) == "DONE"
    assert all(octets[at] == at // STEP % 251 for at in range(0, LEN, STEP)), "octets"
    print("right", flush=True)


main()

#!/usr/bin/env python3
"""Compiles C programs with the headers of libibverbs-dev, and runs them on librddp_verbs.so, with a
device that looks like RoCE, at an address of IPv4 and at one of IPv6; some also at a link-local one
of an interface in a network of its own.

    roce.py LIBRARY [PROGRAM [WORD]...]

Without a PROGRAM all are run, without words. `roce_kills 200 SEED` is longer than it is here. A
program ends with 1 at the first wrong answer, and with 2 where this machine does not let it try.
"""

import subprocess
import sys
import tempfile

import c_program

# Programs, the addresses of their devices, and what the log has to tell of them.
BOTH = ("127.0.0.1", "::1")
PROGRAMS = {
    "roce": (BOTH, []),
    "datagrams": ((*BOTH, "link-local"), []),
    "states": ((*BOTH, "link-local"), []),
    "demanded": (BOTH, []),
    "roce_children": (BOTH, []),
    "roce_kills": (BOTH, []),
    "roce_ports": (BOTH, ["ibv_create_qp: ENOMEM: the host has no TCP or UDP port left",
                          "ibv_modify_qp: ENOMEM: the host", "widen net.ipv4.ip_local_port_range"]),
}


# Words before a program's own: the device has the link-local address of an interface.
LINK_LOCAL = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", """
ip link set lo up && ip link add link0 type veth peer name link1 || exit 2
ip link set link1 up && ip link set link0 up
until address=$(ip -6 -o address show dev link0 scope link -tentative | grep -o 'fe80[^/]*'); do sleep 0.1; done
RDDP_ROCE=mlx5_0=$address exec "$@"
""", "sh"]


def fault(command, environment, told):
    """Runs a program. Returns what is wrong, and whether it was tried."""
    environment = environment | ({"RDDP_LOG": "verbs=info"} if told else {})
    ended = subprocess.run(command, timeout=300, env=environment, text=True,
                           stderr=subprocess.PIPE if told else None)
    if ended.returncode:
        return f"ended with {ended.returncode}: {ended.stderr or ''}", ended.returncode != 2
    missing = [words for words in told if words not in ended.stderr]
    return (f"does not tell {missing}" if missing else None), True


def main():
    untried = False
    with tempfile.TemporaryDirectory() as folder:
        for program in sys.argv[2:3] or PROGRAMS:
            built = c_program.build(sys.argv[1], folder, program)
            if not built:
                return 1
            path, environment = built
            addresses, told = PROGRAMS[program]
            for address in addresses:
                variables = {"RDDP_ROCE": f"mlx5_0={address}", "RDDP_VERBS_EXTENSIONS": "on"}
                around = LINK_LOCAL if address == "link-local" else []
                wrong, tried = fault([*around, path, *sys.argv[3:]], environment | variables, told)
                if wrong:
                    print(f"{program}: {address}: {wrong}")
                if wrong and tried:
                    return 1
                untried |= not tried
    print("roce: what has completed is there, what is refused is named, and datagrams go where they should")
    return 2 if untried else 0


if __name__ == "__main__":
    sys.exit(main())

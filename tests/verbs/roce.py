#!/usr/bin/env python3
"""Compiles roce.c and datagrams.c with the headers of libibverbs-dev, and runs them on
librddp_verbs.so, with a device that looks like RoCE, at an address of IPv4 and at one of IPv6.

    roce.py LIBRARY [ROUNDS]
"""

import pathlib
import subprocess
import sys
import tempfile

import c_program


def main():
    with tempfile.TemporaryDirectory() as name:
        for program in ("roce", "datagrams"):
            built = c_program.build(sys.argv[1], pathlib.Path(name), program)
            if not built:
                return 1
            path, environment = built
            for address in ("127.0.0.1", "::1"):
                ended = subprocess.run([path, *sys.argv[2:]], timeout=300,
                                       env=environment | {"RDDP_ROCE": f"mlx5_0={address}"})
                if ended.returncode:
                    print(f"{program}: {address}: ended with {ended.returncode}")
                    return 1
    print("roce: what has completed is there, what is refused is named, and datagrams go where they should")
    return 0


if __name__ == "__main__":
    sys.exit(main())

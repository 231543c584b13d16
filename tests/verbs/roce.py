#!/usr/bin/env python3
"""Compiles roce.c with the headers of libibverbs-dev, and runs it on librddp_verbs.so, with a
device that looks like RoCE.

    roce.py LIBRARY [ROUNDS]
"""

import pathlib
import subprocess
import sys
import tempfile

import c_program


def main():
    with tempfile.TemporaryDirectory() as name:
        built = c_program.build(sys.argv[1], pathlib.Path(name), "roce")
        if not built:
            return 1
        program, environment = built
        for address in ("127.0.0.1", "::1"):
            ended = subprocess.run([program, *sys.argv[2:]], timeout=300,
                                   env=environment | {"RDDP_ROCE": f"mlx5_0={address}"})
            if ended.returncode:
                print(f"roce: {address}: ended with {ended.returncode}")
                return 1
    print("roce: what has completed is there, and what is refused is named")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compiles programs with the headers of libibverbs-dev and runs them on librddp_verbs.so."""

import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS = ["calls", "rsockets", "hostile"]


def main():
    library, failed = pathlib.Path(sys.argv[1]).resolve(), False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link in ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so",
                     library.name):
            (folder / link).symlink_to(library)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(folder))
        for program in PROGRAMS:
            source = pathlib.Path(__file__).with_name(f"{program}.c")
            command = [os.environ.get("CC", "cc"), "-Wall", "-g", "-o", folder / program, source,
                       f"-L{folder}", "-lrdmacm", "-libverbs", "-lpthread"]
            if subprocess.run(command).returncode:
                print("calls: no compiler, or no headers: install libibverbs-dev, librdmacm-dev")
                return 1
            ended = subprocess.run([folder / program], env=environment, timeout=150).returncode
            if ended:
                print(f"calls: {program} ended with {ended}")
                failed = True
    print(f"calls: {'failed' if failed else 'all as the manual pages say'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

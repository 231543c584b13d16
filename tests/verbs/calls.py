#!/usr/bin/env python3
"""Compiles calls.c with the headers of libibverbs-dev and runs it on librddp_verbs.so."""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).with_name("calls.c")


def main():
    library = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link in ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so",
                     library.name):
            (folder / link).symlink_to(library)
        command = [os.environ.get("CC", "cc"), "-Wall", "-g", "-o", folder / "calls", SOURCE,
                   f"-L{folder}", "-lrdmacm", "-libverbs", "-lpthread"]
        if subprocess.run(command).returncode:
            print("calls: no compiler, or no headers: install libibverbs-dev and librdmacm-dev")
            return 1
        environment = dict(os.environ, LD_LIBRARY_PATH=str(folder))
        ended = subprocess.run([folder / "calls"], env=environment, timeout=60).returncode
    print(f"calls: {'failed' if ended else 'all as the manual pages say'}")
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())

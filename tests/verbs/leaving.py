#!/usr/bin/env python3
"""Compiles leaving.c with the headers of libibverbs-dev, and runs it on librddp_verbs.so: alone,
and by `rddp run --verbs`, also with `--ddp`, under which the program's own TCP connection is an
iWARP connection, too. Both are beside the library."""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).with_name("leaving.c")
WAYS = [[], ["run", "--verbs", "--"], ["run", "--verbs", "--ddp", "--"]]


def main():
    library, failed = pathlib.Path(sys.argv[1]).resolve(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link in ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so",
                     library.name):
            (folder / link).symlink_to(library)
        program = folder / "leaving"
        command = [os.environ.get("CC", "cc"), "-Wall", "-g", "-o", program, SOURCE,
                   f"-L{folder}", "-lrdmacm", "-libverbs"]
        if subprocess.run(command).returncode:
            print("leaving: no compiler, or no headers: install libibverbs-dev and librdmacm-dev")
            return 1
        for way in WAYS:
            rddp = [library.with_name("rddp"), *way] if way else []
            environment = dict(os.environ, **({} if way else {"LD_LIBRARY_PATH": str(folder)}))
            for word in ("exit", "_exit", "parent"):
                # Until all of its processes have closed their output.
                ended = subprocess.run([*rddp, program, word], env=environment, timeout=90,
                                       capture_output=True, text=True)
                if ended.returncode or ended.stdout != "all\n" or ended.stderr:
                    failed += 1
                    print(f"leaving: {' '.join(way)} {word}: {ended.returncode} {ended.stdout}"
                          f"{ended.stderr}")
    print(f"leaving: {f'{failed} failed' if failed else 'the other end has all that was sent'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

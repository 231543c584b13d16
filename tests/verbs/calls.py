#!/usr/bin/env python3
"""Runs C programs that are both ends of a connection, on librddp_verbs.so.

    calls.py LIBRARY [NAME]...

Each of `NAMES` is a program of this folder, which ends with 1 at the first wrong answer, and with 2
where this machine does not let it try.
"""

import os
import signal
import subprocess
import sys
import tempfile

from c_program import build

NAMES = ("calls", "pairs", "signals", "hostile", "cancelled", "children", "descriptors", "rsockets",
         "rsocket_peers", "vanished")


def main():
    failed = untried = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or NAMES:
            built = build(sys.argv[1], folder, name)
            if not built:
                return 1
            program, environment = built
            process = subprocess.Popen([program], env=environment, start_new_session=True)
            try:
                ended = process.wait(150)
            except subprocess.TimeoutExpired:
                ended = "a time-out"
                os.killpg(process.pid, signal.SIGKILL)
            if ended == 2:
                untried += 1
                print(f"calls: {name}.c could not be tried")
            elif ended:
                failed += 1
                print(f"calls: {name}.c ended with {ended}")
    print(f"calls: {f'{failed} failed' if failed else 'all as the manual pages say'}")
    return 1 if failed else 2 if untried else 0


if __name__ == "__main__":
    sys.exit(main())

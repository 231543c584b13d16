#!/usr/bin/env python3
"""Compiles strict.c with the headers of libibverbs-dev, and runs it on librddp_verbs.so: with
devices that look like RoCE, with an iWARP device that is as strict, and with one that is not."""

import pathlib
import subprocess
import sys
import tempfile

import c_program

# Variables, and the words that strict.c is run with.
RUNS = [
    ({"RDDP_ROCE": "mlx5_0=127.0.0.1"}, []),
    ({"RDDP_ROCE": "mlx5_0=::1"}, []),
    ({"RDDP_VERBS_STRICT": "on"}, []),
    ({}, ["lenient"]),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        built = c_program.build(sys.argv[1], pathlib.Path(name), "strict")
        if not built:
            return 1
        path, environment = built
        for variables, words in RUNS:
            ended = subprocess.run([path, *words], timeout=90, env=environment | variables)
            if ended.returncode:
                failed += 1
                print(f"strict: {variables}: ended with {ended.returncode}")
    print(f"strict: {f'{failed} failed' if failed else 'what adapters refuse is refused'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compiles model.c with the headers of libibverbs-dev, and runs it on librddp_verbs.so, with a
device that looks like RoCE: random requests beside a model of what they do. The same seed has the
same requests; ten million operations take an hour or two.

    model.py LIBRARY [OPERATIONS [SEED]]
"""

import pathlib
import subprocess
import sys
import tempfile

import c_program


def main():
    operations, seed = (sys.argv[2:] + ["100000", "1"][len(sys.argv[2:]):])[:2]
    with tempfile.TemporaryDirectory() as name:
        built = c_program.build(sys.argv[1], pathlib.Path(name), "model")
        if not built:
            return 1
        path, environment = built
        ended = subprocess.run([path, operations, seed], env=environment | {"RDDP_ROCE": "mlx5_0=127.0.0.1"})
        if ended.returncode:
            print(f"model: ended with {ended.returncode}")
            return 1
    print(f"model: {operations} operations, each as the model has it")
    return 0


if __name__ == "__main__":
    sys.exit(main())

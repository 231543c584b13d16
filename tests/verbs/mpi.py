#!/usr/bin/env python3
"""Runs ranks.c under Open MPI on librddp_verbs.so, by libfabric's provider verbs;ofi_rxm.

    mpi.py LIBRARY [RANKS]...

Without numbers, with 2, 4, 8 and 16 ranks on this host. Needs openmpi-bin and libopenmpi-dev; takes
some seconds a run. Ends with 2 where they are missing.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

PROVIDER = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
            "verbs;ofi_rxm"]


def main():
    rddp, failed = pathlib.Path(sys.argv[1]).resolve().with_name("rddp"), 0
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        print("mpi: NOT RUN: install openmpi-bin and libopenmpi-dev")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "ranks"
        source = pathlib.Path(__file__).with_name("ranks.c")
        subprocess.run(["mpicc", "-Wall", "-O1", "-o", program, source], check=True)
        for ranks in sys.argv[2:] or ("2", "4", "8", "16"):
            command = [rddp, "run", "--verbs", "--", "mpirun", "--allow-run-as-root",
                       "--oversubscribe", "-n", ranks, *PROVIDER, program]
            try:
                ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
            except subprocess.TimeoutExpired:
                failed += 1
                print(f"mpi: {ranks} ranks do not end in 300 s")
                continue
            if ended.returncode or f"{ranks} ranks on 1 hosts, 0 wrong" not in ended.stdout:
                failed += 1
                print(f"mpi: {ranks} ranks: {ended.returncode} {ended.stdout}{ended.stderr}")
    print(f"mpi: {f'{failed} failed' if failed else 'all numbers are right'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

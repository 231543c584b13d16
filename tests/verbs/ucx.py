#!/usr/bin/env python3
"""Runs UCX, and MPI over it, on librddp_verbs.so, with a device that looks like RoCE.

    ucx.py LIBRARY [WORD]...

`ucx_info` and `ucx_perftest` are of ucx-utils; ranks.c runs under Open MPI (openmpi-bin,
libopenmpi-dev) and under MPICH (mpich, libmpich-dev), with 2 ranks. With words, only the cases
whose name has one of them. Ends with 2 where a package is missing, or namespaces are not allowed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
AT, PORT = "127.0.0.1", "13337"
DEVICE = {"RDDP_ROCE": f"mlx5_0={AT}", "UCX_NET_DEVICES": "mlx5_0:1"}
SECONDS = 60

# Tests of ucx_perftest, with sizes.
OVER_RC = [("tag_lat", 8), ("tag_bw", 8), ("tag_bw", 1 << 20), ("stream_lat", 8), ("stream_bw", 65536),
           ("ucp_put_lat", 8), ("ucp_put_bw", 65536), ("ucp_get", 65536), ("ucp_add", 8),
           ("ucp_fadd", 8), ("ucp_cswap", 8), ("ucp_am_lat", 8), ("ucp_am_bw", 65536)]
OVER_UD = [("tag_lat", 8), ("tag_bw", 65536), ("ucp_am_lat", 8)]

# MPI programs: the compiler, and the command that starts ranks.
OPEN_MPI = ("mpicc.openmpi", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "pml",
                              "ucx", "--mca", "osc", "ucx"])
MPICH = ("mpicc.mpich", ["mpiexec.mpich"])


class Bench:
    """Commands under `rddp run --verbs`, where UCX finds the device."""

    def __init__(self, library):
        self.run = [HERE / "with-node", pathlib.Path(library).resolve().with_name("rddp"), "run",
                    "--verbs", "--"]

    def start(self, words, **variables):
        return subprocess.Popen([*self.run, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env=os.environ | DEVICE | variables)

    def ended(self, *started):
        """Returns what is wrong with the ends of programs, or None."""
        until, wrong = time.monotonic() + SECONDS, None
        for process in started:
            try:
                said = process.communicate(timeout=max(0.1, until - time.monotonic()))[0]
                if process.returncode:
                    wrong = wrong or f"status {process.returncode}: {said}"
            except subprocess.TimeoutExpired:
                process.kill()
                wrong = wrong or f"does not end: {process.communicate()[0]}"
        return wrong

    def perftest(self, test, size, layers):
        command = ["ucx_perftest", "-p", PORT]
        server = self.start(command, UCX_TLS=layers)
        await_listener(int(PORT))
        client = self.start([*command, AT, "-t", test, "-s", str(size), "-n", "300"], UCX_TLS=layers)
        return self.ended(client, server)

    def info(self):
        said = self.start(["ucx_info", "-d"]).communicate(timeout=SECONDS)[0]
        lacking = [name for name in ("rc_verbs", "ud_verbs") if f"Transport: {name}" not in said]
        return f"no {lacking}: {said}" if lacking else None

    def ranks(self, compiler, mpirun, folder):
        program = pathlib.Path(folder) / compiler
        subprocess.run([compiler, "-Wall", "-O1", "-o", program, HERE / "ranks.c"], check=True)
        ranks = self.start([*mpirun, "-n", "2", program, "atomics"], UCX_TLS="rc,ud,self",
                           MPIR_CVAR_NOLOCAL="1")
        said = ranks.communicate(timeout=SECONDS)[0]
        return None if ranks.returncode == 0 and "2 ranks on 1 hosts, 0 wrong" in said else said


def await_listener(port):
    """Waits until somebody listens."""
    wanted, until = f":{port:04X} 00000000:0000 0A", time.monotonic() + SECONDS
    while wanted not in pathlib.Path("/proc/net/tcp").read_text() and time.monotonic() < until:
        time.sleep(0.02)


def cases(bench, folder):
    """Yields names, the programs that are needed, and what runs them."""
    yield "ucx_info", ["ucx_info"], bench.info
    for layers, tests in (("rc_verbs,ud_verbs", OVER_RC), ("ud_verbs", OVER_UD)):
        for test, size in tests:
            yield (f"ucx_perftest {test} {size} {layers}", ["ucx_perftest"],
                   lambda test=test, size=size, layers=layers: bench.perftest(test, size, layers))
    for name, (compiler, mpirun) in (("Open MPI", OPEN_MPI), ("MPICH", MPICH)):
        yield (name, [compiler, mpirun[0]],
               lambda compiler=compiler, mpirun=mpirun: bench.ranks(compiler, mpirun, folder))


def main():
    bench, words = Bench(sys.argv[1]), sys.argv[2:]
    if subprocess.run([HERE / "with-node", "true"]).returncode:
        print("ucx: NOT RUN: no namespace of an ordinary user's is to be had")
        return 2
    failed = missing = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, needs, run in cases(bench, folder):
            if words and not any(word in name for word in words):
                continue
            count += 1
            lacking = [need for need in needs if not shutil.which(need)]
            if lacking:
                missing += 1
                print(f"ucx: {name}: NOT RUN: there is no {lacking[0]}")
                continue
            wrong = run()
            if wrong:
                failed += 1
                print(f"ucx: {name}: {wrong}")
    print(f"ucx: {count} cases, {failed} failed, {missing} could not be run")
    return 1 if failed else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs MPI over three hosts, which are network namespaces, on devices that look like RoCE.

    hosts.py LIBRARY [RANKS]...

ranks.c runs under Open MPI by UCX (openmpi-bin, libopenmpi-dev) and under MPICH (mpich,
libmpich-dev), with 2 ranks where no numbers are given; then a rank is killed, and all others have
to end. Ends with 2 where a package is missing, or namespaces are not allowed.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import network

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = 3
SECONDS = 60
VARIABLES = {"UCX_TLS": "rc,ud,self", "MPIR_CVAR_NOLOCAL": "1"}


def open_mpi(addresses, agent, ranks):
    """Returns the words that start so many ranks."""
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--map-by", "node", "--host",
            ",".join(f"{address}:{ranks}" for address in addresses), "--mca", "plm_rsh_agent", agent,
            "--mca", "oob_tcp_if_include", "eth0", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
            "-x", "UCX_TLS", "-n", ranks]


def mpich(addresses, agent, ranks):
    """Returns the words that start so many ranks."""
    return ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", agent, "-hosts",
            ",".join(addresses), "-ppn", "1", "-n", ranks]


IMPLEMENTATIONS = {"Open MPI": ("mpicc.openmpi", open_mpi), "MPICH": ("mpicc.mpich", mpich)}


class Bench:
    """Hosts, and MPI programs on them under `rddp run --roce`."""

    def __init__(self, library, folder):
        self.rddp = pathlib.Path(library).resolve().with_name("rddp")
        self.folder = folder
        self.hosts = network.hosts(HOSTS, folder)
        self.agent = folder / "agent"
        network.agent(self.agent, self.hosts)

    def start(self, words, ranks, *program):
        """Starts ranks from the first host, as many on each one as on the next."""
        command = words([host.address for host in self.hosts], self.agent, ranks)
        command += [self.rddp, "run", "--roce", "--", *program]
        return subprocess.Popen(self.hosts[0].command(*command), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                cwd=self.folder, env=os.environ | VARIABLES)

    def ranks(self, program, words, ranks):
        """Returns what is wrong with a run of ranks.c, or None."""
        started = self.start(words, ranks, program, "atomics")
        said, ended = output(started)
        hosts = min(ranks, HOSTS)
        right = ended and started.returncode == 0 and f"{ranks} ranks on {hosts} hosts, 0 wrong" in said
        return None if right else said

    def killed(self, program, words, ranks):
        """Returns what is wrong with a run of which a rank is killed, or None."""
        started = self.start(words, ranks, program, "for ever")
        with ended_late(lambda: [started.pid, *running(program)]):
            begins = any("going on" in line for line in started.stdout)
        if not begins:
            return f"does not begin: {output(started)[0]}"
        os.kill(running(program)[-1], signal.SIGKILL)
        until = time.monotonic() + SECONDS
        said, ended = output(started)
        while running(program) and time.monotonic() < until:
            time.sleep(0.1)
        if not ended or started.returncode == 0 or running(program):
            return f"{len(running(program))} ranks go on, status {started.returncode}: {said}"
        return None


def output(process, seconds=SECONDS):
    """Returns what a program has printed, and whether it has ended by itself."""
    try:
        return process.communicate(timeout=seconds)[0], True
    except subprocess.TimeoutExpired:
        process.kill()
        return f"does not end: {process.communicate()[0]}", False


@contextlib.contextmanager
def ended_late(processes):
    """Kills processes that take too long for the body, which reads what one of them prints."""
    late = threading.Timer(SECONDS, lambda: [os.kill(pid, signal.SIGKILL) for pid in processes()])
    late.start()
    try:
        yield
    finally:
        late.cancel()


def running(program):
    """Returns the processes that run a program."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink() == program:
                found.append(int(process.name))
        except OSError:  # It has just ended.
            pass
    return found


def cases(bench, counts):
    """Yields names, the programs that are needed, and what runs them."""
    for name, (compiler, words) in IMPLEMENTATIONS.items():
        program = bench.folder / compiler
        needs = [compiler, words([], "", 1)[0]]
        if shutil.which(compiler):
            subprocess.run([compiler, "-Wall", "-O1", "-o", program, HERE / "ranks.c"], check=True)
        for ranks in counts:
            yield (f"{name}, {ranks} ranks", needs,
                   lambda program=program, words=words, ranks=ranks: bench.ranks(program, words, ranks))
        yield (f"{name}, a rank is killed", needs,
               lambda program=program, words=words: bench.killed(program, words, 3))


def main():
    if not network.enter():
        print("hosts: NOT RUN: no network namespaces of an ordinary user's are to be had")
        return 2
    counts = [int(word) for word in sys.argv[2:]] or [2]
    failed = missing = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, needs, run in cases(Bench(sys.argv[1], pathlib.Path(folder)), counts):
            count += 1
            lacking = [need for need in needs if not shutil.which(need)]
            wrong = None if lacking else run()
            missing += bool(lacking)
            failed += wrong is not None
            if lacking or wrong is not None:
                print(f"hosts: {name}: {f'NOT RUN: there is no {lacking[0]}' if lacking else wrong}")
    print(f"hosts: {count} cases, {failed} failed, {missing} could not be run")
    return 1 if failed else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

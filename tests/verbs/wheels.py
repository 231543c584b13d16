#!/usr/bin/env python3
"""Runs programs that Debian does not have, and long ones that it has, on devices that look like
RoCE, between hosts that are network namespaces. Takes some minutes.

    wheels.py LIBRARY [WORD]...

WHEELS is a virtual environment of Python's with what the programs need, of which those are not run
that are missing:

    python3 -m venv DIR
    DIR/bin/pip install --no-deps nvidia-nccl-cu12 mooncake-transfer-engine-non-cuda \\
        nixl nixl-cu12 numpy
    WHEELS=DIR tests/verbs/run wheels

The suite of mpi4py is in its source, of the version of python3-mpi4py, unpacked in DIR. hpcc and
fi_pingpong are of hpcc and libfabric-bin. With words, only the cases with one in their names. Ends
with 2 where something is missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import hosts as mpi
import network

HERE = pathlib.Path(__file__).resolve().parent
WHEELS = pathlib.Path(os.environ.get("WHEELS", "none"))
SECONDS = 900
MESSAGES = 1000


class Ends:
    """Programs on two of the hosts, each of which has two devices."""

    def __init__(self, bench):
        self.bench, self.started = bench, []
        for host in bench.hosts:
            second = host.address.replace("10.98.0.", "10.98.0.10")
            subprocess.run(host.command("ip", "address", "add", f"{second}/24", "dev", "eth0"), check=True)
            host.devices = f"mlx5_0={host.address},mlx5_1={second}"

    def start(self, number, *words, **variables):
        host = self.bench.hosts[number]
        command = host.command(self.bench.rddp, "run", "--roce", host.devices, "--", *words)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, cwd=self.bench.folder,
                                   env=os.environ | variables)
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            process.kill()
            process.communicate()
        self.started = []


def ended(process, seconds=60):
    """Returns what a program has said, and whether it ended well."""
    said, by_itself = mpi.output(process, seconds)
    return said, by_itself and process.returncode == 0


def await_line(process, pattern):
    """Returns what the pattern finds in the lines of a program."""
    seen = []
    with mpi.ended_late(lambda: [process.pid]):
        for line in process.stdout:
            seen.append(line)
            if found := re.search(pattern, line):
                return found
    raise AssertionError(f"no {pattern!r} in: {''.join(seen)}")


def start_nccl(ends, **variables):
    """Starts both ends, the variables at the one that connects. Returns that and the other."""
    (library,) = WHEELS.glob("lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2")
    names = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    offset = re.search(r"([0-9a-f]+) d ncclNetIb\n", names)[1]
    program = ends.bench.folder / "nccl"
    subprocess.run(["cc", "-Wall", "-O1", "-o", program, HERE / "nccl.c", "-ldl"], check=True)
    words = [program, library, offset, MESSAGES]
    at = [ends.bench.hosts[0].address, "7777"]
    listener = ends.start(0, *map(str, words), "listen", *at)
    return ends.start(1, *map(str, words), "connect", *at, **variables), listener


def nccl(ends):
    for process in start_nccl(ends):
        said, well = ended(process, 300)
        assert well and f"2 devices, {MESSAGES} messages each" in said, said


def nccl_fails(ends):
    """Faults on demand. 6 is NCCL's error of a peer; who only receives waits for ever then, as on
    an adapter, but for a connection that is reset."""
    for rule, fails, ends_too in (("op=write nth=50 status=RETRY_EXC_ERR", True, False),
                                  ("qp=1 after=1M reset", True, True),
                                  ("port at=200ms down=100ms", False, True)):
        connector, listener = start_nccl(ends, RDDP_VERBS_FAULTS=rule)
        said, well = ended(connector, 60)
        assert ("nccl: test: 6" in said and not well) if fails else well, f"{rule}: {said}"
        if ends_too:
            said, well = ended(listener, 60)
            assert well != fails, f"{rule}: {said}"
        ends.end()


def bench_of_mooncake(ends, operation):
    # The program itself: bin/ has a script that would leave it behind.
    (program,) = WHEELS.glob("lib/python*/site-packages/mooncake/transfer_engine_bench")
    hosts = ends.bench.hosts
    words = [program, "-metadata_server", "P2PHANDSHAKE", "-protocol", "rdma", "-device_name", "mlx5_0",
             "-buffer_size", 64 << 20, "-threads", 2, "-batch_size", 16, "-duration", 3]
    words = list(map(str, words))
    target = ends.start(0, *words, "-mode", "target", "-local_server_name", hosts[0].address)
    segment = await_line(target, r"listening on ([0-9.:]+)")[1]
    initiator = ends.start(1, *words, "-mode", "initiator", "-operation", operation, "-segment_id", segment,
                           "-local_server_name", hosts[1].address)
    said, well = ended(initiator)
    assert well and re.search(r"batch count [1-9]", said), f"{said}; target: {target.poll()}"


def mooncake(ends):
    words, hosts = [WHEELS / "bin/python", HERE / "mooncake_end.py"], ends.bench.hosts
    target = ends.start(0, *words, "target", hosts[0].address)
    port, place = await_line(target, r"^(\d+) (\d+)$").groups()
    initiator = ends.start(1, *words, "initiator", hosts[1].address, f"{hosts[0].address}:{port}", place)
    said, well = ended(initiator)
    assert well, said
    assert "installTransport, type=rdma" in said, f"not by RDMA: {said}"
    written = re.search(r"written (\d+)", said)[1]
    target.stdin.write("\n")
    target.stdin.flush()
    await_line(target, f"^{written}$")


def nixl(ends):
    words, at = [WHEELS / "bin/python", HERE / "nixl_end.py"], [ends.bench.hosts[0].address, "5599"]
    layers = {"UCX_TLS": "rc,ud,self", "UCX_NET_DEVICES": "mlx5_0:1"}
    target = ends.start(0, *words, "target", *at, **layers)
    await_line(target, "ready")
    for process in (ends.start(1, *words, "initiator", *at, **layers), target):
        said, well = ended(process)
        assert well, said


def fi_pingpong(ends):
    words = ["fi_pingpong", "-c", "-p", "verbs;ofi_rxd", "-e", "rdm", "-d", "mlx5_0-dgram", "-I", "100"]
    server = ends.start(0, *words)
    ends.bench.hosts[0].await_listener(47592)
    for process in (ends.start(1, *words, ends.bench.hosts[0].address), server):
        said, well = ended(process)
        assert well, said


def hpcc(ends):
    shape = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
    (ends.bench.folder / "hpccinf.txt").write_text(re.sub(r"(?m)^1000( +Ns)", r"400\1", shape))
    said, well = ended(ends.bench.start(mpi.open_mpi, 4, "hpcc"), SECONDS)
    assert well, said
    results = (ends.bench.folder / "hpccoutf.txt").read_text()
    assert "Success=1" in results and "FAILED" not in results and results.count("PASSED") > 4, results


def mpi4py(ends):
    (suite,) = WHEELS.glob("mpi4py-*/test/runtests.py")
    # Processes that ranks start are children of Open MPI's daemon, which has no device. Debian's
    # Open MPI crashes in `test_win` also by UCX over TCP: it frees a window that it has not mapped.
    left_out = ["-e", "test_spawn", "-e", "test_win"]
    program = ["/usr/bin/python3", suite, "--no-builddir", "-q", *left_out]
    said, well = ended(ends.bench.start(mpi.open_mpi, 3, *program), SECONDS)
    assert well and "FAILED" not in said, said


def exists(pattern):
    return bool([*WHEELS.glob(pattern)])


def cases(bench):
    """Yields names, what is missing, and what runs them."""
    for name, needs, run in (
            ("NCCL", exists("lib/python*/site-packages/nvidia/nccl") or "nvidia-nccl-cu12", nccl),
            ("NCCL, faults", exists("lib/python*/site-packages/nvidia/nccl") or "nvidia-nccl-cu12", nccl_fails),
            ("Mooncake reads", exists("bin/transfer_engine_bench") or MOONCAKE,
             lambda ends: bench_of_mooncake(ends, "read")),
            ("Mooncake writes", exists("bin/transfer_engine_bench") or MOONCAKE,
             lambda ends: bench_of_mooncake(ends, "write")),
            ("Mooncake, compared", exists("bin/transfer_engine_bench") or MOONCAKE, mooncake),
            ("NIXL", exists("lib/python*/site-packages/nixl_cu12") or "nixl-cu12", nixl),
            ("fi_pingpong", bool(shutil.which("fi_pingpong")) or "libfabric-bin", fi_pingpong),
            ("hpcc", bool(shutil.which("hpcc")) or "hpcc", hpcc),
            ("mpi4py", exists("mpi4py-*/test/runtests.py") or "the source of mpi4py", mpi4py)):
        yield name, None if needs is True else needs, run


MOONCAKE = "mooncake-transfer-engine-non-cuda"


def main():
    if not network.enter():
        print("wheels: NOT RUN: no network namespaces of an ordinary user's are to be had")
        return 2
    failed = missing = count = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = mpi.Bench(sys.argv[1], pathlib.Path(folder))
        ends = Ends(bench)
        for name, lacking, run in cases(bench):
            if sys.argv[2:] and not any(word in name for word in sys.argv[2:]):
                continue
            count += 1
            missing += bool(lacking)
            if lacking:
                print(f"wheels: {name}: NOT RUN: there is no {lacking}")
                continue
            try:
                run(ends)
            except (AssertionError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"wheels: {name}: {error}")
            finally:
                ends.end()
    print(f"wheels: {count} cases, {failed} failed, {missing} could not be run")
    return 1 if failed else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

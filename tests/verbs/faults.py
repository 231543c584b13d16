#!/usr/bin/env python3
"""Makes faults on demand in unmodified programs on librddp_verbs.so, and looks how they end.

    faults.py LIBRARY [WORD]...
    faults.py LIBRARY sweep [FROM TO]

Each row of `ROWS` is a rule for one end, a program, and what that end says. With words, only the
rows whose rule or program has one of them. A sweep fails the n-th call of programs, for each n from
1 to 100: none may die by a signal, or hang, but of its own accord. Runs in a network of its own.
"""

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
AT, ROCE, IWARP = "127.0.0.1", {"RDDP_ROCE": "mlx5_0=127.0.0.1"}, {}
SECONDS = 60
# How an end is to end: with a status of its own, well, or by this script, since it waits for its
# peer for ever, as it would on an adapter.
FAILS, WELL, WAITS = "an error", "status 0", "no end"
# UCX's own end where its program has no handler of errors; mpirun ends as the rank that did.
ABORTS = f"signal, status {-signal.SIGABRT}"
OF_A_RANK = f"signal, status {128 + signal.SIGABRT}"


@dataclasses.dataclass
class Row:
    """A rule for one end, and the programs."""
    rule: str
    server: str
    client: str
    says: str
    device: dict = dataclasses.field(default_factory=lambda: ROCE)
    at: str = "client"
    ends: tuple = (FAILS, FAILS)
    # How often the rule fires at least.
    fires: int = 1
    seconds: int = 60


def alike(rule, command, says, **rest):
    """A row of a program that is its own peer, and takes the server's address last."""
    return Row(rule, command, f"{command} {AT}", says, **rest)


RPING = dict(server=f"rping -s -a {AT}", client=f"rping -c -a {AT} -C 50", device=IWARP)
# Two ranks of ranks.c, in place of a client. UCX ends a rank by a signal, and mpirun may lose the
# rank's last words.
MPI = dict(server="true", device=ROCE | {"UCX_TLS": "rc,ud,self"}, client="mpirun.openmpi --allow-run-as-root "
           "--oversubscribe --mca pml ucx --mca osc ucx -n 2 RANKS")
ABORTED = "exited on signal 6 (Aborted)"
ROWS = [
    Row("call=ibv_reg_mr nth=1 errno=ENOMEM", says="reg_mr failed", ends=(WAITS, FAILS), **RPING),
    Row("call=rdma_resolve_* nth=2 errno=ENETUNREACH", says="Network is unreachable", ends=(WAITS, FAILS),
        **RPING),
    # Its header makes another function of the call.
    alike("call=ibv_reg_mr nth=1 errno=ENOMEM", "ib_write_bw", "Couldn't create IB resources"),
    alike("call=ibv_modify_qp nth=2 errno=EINVAL", "ibv_rc_pingpong -g 0", "Failed to modify QP to RTR",
          ends=(WAITS, FAILS)),
    alike("call=ibv_post_send nth=100 errno=ENOMEM", "ib_write_bw", "Couldn't post send"),
    alike("call=ibv_* rate=1/7 seed=3 delay=1ms", "ibv_rc_pingpong -g 0 -n 20", "iters in", ends=(WELL, WELL)),
    alike("op=write nth=100 status=REM_ACCESS_ERR", "ib_write_bw", "Failed status 10"),
    alike("op=send nth=100 status=RETRY_EXC_ERR", "ib_send_bw", "Failed status 12", ends=(WAITS, FAILS)),
    alike("op=read nth=20 status=REM_OP_ERR", "ib_read_bw", "Failed status 11"),
    alike("op=atomic nth=5 status=REM_INV_REQ_ERR", "ib_atomic_bw", "Failed status 9"),
    alike("op=recv nth=2 status=LOC_LEN_ERR", "ibv_rc_pingpong -g 0", "local length error"),
    alike("op=recv nth=2 status=LOC_PROT_ERR", "ibv_rc_pingpong -g 0", "local protection error"),
    alike("op=write nth=100 status=LOC_PROT_ERR", "ib_write_bw -R", "Failed status 4", device=IWARP),
    Row("op=send nth=200 status=RETRY_EXC_ERR", "ucx_perftest",
        f"ucx_perftest {AT} -t tag_lat -s 8 -n 1000", "transport retry counter exceeded", ends=(WAITS, ABORTS)),
    alike("op=write nth=10 delay=200ms", "ib_write_lat -n 100", "t_avg", ends=(WELL, WELL)),
    alike("op=send nth=5 drop", "ibv_rc_pingpong -g 0", "", ends=(WAITS, WAITS), seconds=5),
    alike("qp=1 after=1M reset", "ib_write_bw", "Failed status 12"),
    Row("op=send nth=30 status=RETRY_EXC_ERR", says=ABORTED, ends=(WELL, OF_A_RANK), **MPI),
    Row("qp=5 after=1M reset", says=ABORTED, ends=(WELL, OF_A_RANK), **MPI),
    Row("port at=50ms down=50ms", says="2 ranks on 1 hosts, 0 wrong", ends=(WELL, WELL), **MPI),
    Row("port at=10ms down=10ms; device at=200ms fatal", "true", "timeout 5 ibv_asyncwatch",
        "IBV_EVENT_PORT_ACTIVE (9), port 1", ends=(WELL, FAILS), fires=0),
]


class Bench:
    """Programs on the library, each end with its environment."""

    def __init__(self, library, folder):
        self.ranks = pathlib.Path(folder) / "ranks"
        self.run = [HERE / "with-node", pathlib.Path(library).resolve().with_name("rddp"), "-v", "run",
                    "--verbs", "--"]

    def build(self):
        """Compiles ranks.c. Returns what is missing for that, or None."""
        if not shutil.which("mpicc.openmpi"):
            return "there is no mpicc.openmpi"
        if not self.ranks.exists():
            subprocess.run(["mpicc.openmpi", "-Wall", "-O1", "-o", self.ranks, HERE / "ranks.c"], check=True)
        return None

    def start(self, command, variables):
        words = [self.ranks if word == "RANKS" else word for word in command.split()]
        return subprocess.Popen([*self.run, *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace", start_new_session=True,
                                env=os.environ | {"UCX_TLS": "rc_verbs,ud_verbs", "UCX_NET_DEVICES": "mlx5_0:1"}
                                | variables)

    def ended(self, server, client, device, at, rule, seconds=60):
        """Runs both ends, the rule at one of them. Returns the status and the words of each; the
        status is None if it had to be ended."""
        at_fault = {"RDDP_VERBS_FAULTS": rule}
        first = self.start(server, device | (at_fault if at == "server" else {}))
        await_listener(first)
        second = self.start(client, device | (at_fault if at == "client" else {}))
        until = time.monotonic() + seconds
        ends = {}
        for name, process in (("client", second), ("server", first)) if at == "client" else (
                ("server", first), ("client", second)):
            try:
                said = process.communicate(timeout=max(0.1, until - time.monotonic()))[0]
                ends[name] = process.returncode, said
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                ends[name] = None, process.communicate()[0]
            # The peer of one that has failed has a moment to learn of it.
            until = min(until, time.monotonic() + PEER)
        return ends


# Seconds for the peer of an end that has failed.
PEER = 5


def await_listener(process):
    """Waits until anybody listens, in this network of our own, or the process has ended."""
    until = time.monotonic() + SECONDS
    while " 0A " not in pathlib.Path("/proc/net/tcp").read_text() + pathlib.Path(
            "/proc/net/tcp6").read_text() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def how(status):
    """Returns the way in which a program has ended. `rddp run` tells of signals by 128 and more."""
    if status is None:
        return WAITS
    if status == 0:
        return WELL
    return FAILS if 0 < status < 128 or status == 255 else f"signal, status {status}"


def fault(bench, row):
    """Returns what is wrong with a row, or None."""
    ends = bench.ended(row.server, row.client, row.device, row.at, row.rule, row.seconds)
    status, said = ends[row.at]
    seen = tuple(how(ends[name][0]) for name in ("server", "client"))
    if seen != row.ends:
        return f"server and client: {seen}, not {row.ends}: {ends}"
    if row.says not in said:
        return f"does not say {row.says!r}: {said}"
    fired = said.count(f'of "{row.rule}"')
    return None if fired >= row.fires else f"{fired} firings are told: {said}"


def rows(bench, words):
    failed = count = 0
    for row in ROWS:
        name = f"{row.rule}: {row.client}"
        if words and not any(word in name for word in words):
            continue
        program = row.client.split()[0]
        missing = None if shutil.which(program) else f"there is no {program}"
        if "RANKS" in row.client:
            missing = missing or bench.build()
        wrong = missing or fault(bench, row)
        count += 1
        if wrong:
            failed += 1
            print(f"faults: {name}: {wrong}")
    print(f"faults: {count} rows, {failed} failed")
    return failed


def sweep(bench, first, last):
    """Fails the n-th call of each program."""
    # Ends that are the programs' own: servers wait for a client that never comes, or for a message
    # of one that has left, as on an adapter. rping's client waits for a thread of its own that has
    # ended, or for an event that it has not acknowledged. UCX aborts where nobody takes its error,
    # and ucx_perftest dies by writing to the TCP connection of a peer that has left.
    own = {("rping", "server", WAITS), ("rping", "client", WAITS), ("ibv_rc_pingpong", "server", WAITS),
           ("ucx_perftest", "server", WAITS), ("ucx_perftest", "client", ABORTS),
           ("ucx_perftest", "server", f"signal, status {-signal.SIGPIPE}")}
    programs = [("rping", f"rping -s -a {AT} -C 5", f"rping -c -a {AT} -C 5", IWARP),
                ("ibv_rc_pingpong", "ibv_rc_pingpong -g 0 -n 20", f"ibv_rc_pingpong -g 0 -n 20 {AT}", ROCE),
                ("ucx_perftest", "ucx_perftest", f"ucx_perftest {AT} -t tag_lat -n 20 -w 1", ROCE)]
    failed, waited = 0, {}
    for name, server, client, device in programs:
        for number in range(first, last + 1):
            rule = f"call=* nth={number} errno=EIO"
            ends = bench.ended(server, client, device, "client", rule)
            ways = {end: how(status) for end, (status, _) in ends.items()}
            if any((name, end, way) not in own and (way == WAITS or way.startswith("signal"))
                   for end, way in ways.items()):
                failed += 1
                print(f"faults: sweep: {name}: {rule}: {ways}: {ends}")
            elif WAITS in ways.values():
                waited.setdefault(name, []).append(number)
    print(f"faults: sweep {first} to {last}: {failed} failed; of their own accord wait: {waited}")
    return failed


def main():
    library, words = sys.argv[1], sys.argv[2:]
    if "RDDP_FAULTS_NETWORK" not in os.environ:
        network = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c",
                   'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        return subprocess.run(network, env=os.environ | {"RDDP_FAULTS_NETWORK": "own"}).returncode
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(library, folder)
        if words[:1] == ["sweep"]:
            first, last = map(int, words[1:3] or (1, 100))
            return 1 if sweep(bench, first, last) else 0
        return 1 if rows(bench, words) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs unmodified programs of libibverbs and librdmacm on librddp_verbs.so, both ends on loopback.

    programs.py LIBRARY [WORD]...

Each case of `CASES` is a server and a client, or a program alone, and the status with which each
is to end. With words, only cases whose name has one of them. `long` as the first word stands for
the cases of `LONG` in their place. Programs are run by the `rddp` beside the library.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# How a server ends that serves for ever: the script ends it.
ENDED = "ended"
# An end that does not matter.
ANY = "any"
# What programs say that fail for reasons of their own: such a case is tried again. qperf's server
# tells its port before it listens; perftest measures the clock, and ends where that is too noisy.
BY_CHANCE = ("Event rejected", "Can't produce a report")
AT = "127.0.0.1"


class Case:
    """Two commands, or one, with the statuses that are right, and what one of them must say."""

    def __init__(self, name, server, client=None, ends=(0, 0), says="", seconds=60, variables=(),
                 tries=3, interrupt=None, by=signal.SIGINT, stdin=b""):
        self.name, self.server, self.client = name, server, client
        self.ends, self.says, self.seconds = ends, says, seconds
        self.variables, self.tries, self.stdin = dict(variables), tries, stdin
        # After how many seconds the client has a signal, if it is to have one, and which.
        self.interrupt, self.by = interrupt, by


def pair(name, command, more="", **rest):
    """A program that is its own peer, and takes the server's address last."""
    return Case(name, f"{command} {more}", f"{command} {more} {AT}", **rest)


def rping(name, options, server="", at=AT, **rest):
    return Case(f"rping {name}", f"rping -s -a {at} {server or options}",
                f"rping -c -a {at} -C 50 {options}", **rest)


def perftest():
    """Bandwidth and latency; latency with -a is of `LONG`."""
    for kind in ("send", "write", "read"):
        yield pair(f"ib_{kind}_bw -a", f"ib_{kind}_bw -R", "-a -n 20", seconds=120)
        yield pair(f"ib_{kind}_lat", f"ib_{kind}_lat -R", "-n 200")
        yield pair(f"ib_{kind}_bw -b", f"ib_{kind}_bw -R", "-b -n 200")
        yield pair(f"ib_{kind}_bw -q", f"ib_{kind}_bw -R", "-q 4 -n 200")
    # With fewer Sends than its receive depth, the client may sleep for a completion while the
    # credit that it needs comes by a Write, of which no event tells: the program's own deadlock.
    yield pair("ib_send_bw -e", "ib_send_bw -R", "-e")
    yield pair("ib_read_bw -e", "ib_read_bw -R", "-e -n 200")
    for kind in ("send", "read"):
        yield pair(f"ib_{kind}_lat -e", f"ib_{kind}_lat -R", "-e -n 200")
    yield pair("ib_send_bw --use-srq", "ib_send_bw -R", "--use-srq -n 200")
    yield pair("ib_write_lat -U", "ib_write_lat -R", "-U -n 100")


def interrupted(seconds):
    """Programs that run until a SIGINT. Their peer then ends as well, with an error. What they say
    each second has to leave them before they end (stdbuf)."""
    for kind in ("send", "write", "read"):
        yield pair(f"ib_{kind}_bw --run_infinitely, {seconds} s", f"stdbuf -oL ib_{kind}_bw -R",
                   "--run_infinitely -D 1", interrupt=seconds, seconds=seconds + 60,
                   ends=(1, -signal.SIGINT), says="\n 65536 ")


def fio():
    """The server of a test by Sends posts receives for all of them first: a Send without a receive
    ends an iWARP connection. What is sent is verified by the server, so that it complains of
    another kind of checksum; memory that a client writes or reads is looked at by nobody."""
    common = "--ioengine=rdma --port=7421 --bs=16k --size=512k"
    def case(name, verb, server, client, **rest):
        return Case(f"fio {name}", f"fio --name=server {common} --rw=read {server}",
                    f"fio --name=client {common} --rw=write --hostname={AT} --verb={verb} {client}",
                    seconds=30, **rest)
    deep = "--iodepth=32"
    yield case("writes memory", "write", "--verify=crc32c", "--iodepth=4 --verify=crc32c")
    yield case("reads memory", "read", "--verify=crc32c", "--iodepth=4 --verify=crc32c")
    yield case("sends", "send", f"{deep} --verify=crc32c", f"{deep} --verify=crc32c")
    yield case("verifies", "send", f"{deep} --verify=md5", f"{deep} --verify=crc32c",
               ends=(1, 0), says="verify type mismatch")
    # The signal ends a client in the middle of its work; the server then ends as well.
    for verb in ("write", "read"):
        yield case(f"ended in its {verb}s", verb, "", "--iodepth=4 --time_based --runtime=25",
                   ends=(0, 128), interrupt=2, by=signal.SIGTERM)


def libfabric():
    """Each message is compared with what was to come (-c)."""
    for provider, kind in (("verbs", "msg"), ("verbs;ofi_rxm", "rdm")):
        command = f"fi_pingpong -p {provider} -e {kind} -c -I 20"
        yield Case(f"{command}", f"{command} -B 7431", f"{command} -P 7431 {AT}", seconds=30)


def rsockets():
    """Without `-T f`, with which rstream uses plain sockets (its manual page)."""
    for kind in ("", "-T a", "-T b", "-T n", "-T v"):
        options = f"-S 20000 -C 50 -p 7411 {kind}"
        yield Case(f"rstream {kind}", f"rstream {options}", f"rstream -s {AT} {options}")
        options = f"-S 20000 -C 50 -p 7413 {kind}"
        yield Case(f"riostream {kind}", f"riostream {options}", f"riostream -s {AT} {options}")
    # The server stays.
    yield Case("rcopy", "rcopy -p 7412", f"rcopy {__file__} {AT}:FOLDER/copy -p 7412",
               ends=(ENDED, 0), says=f"{os.path.getsize(__file__)} bytes in")


# Debian's preload, which makes rsockets of a program's sockets.
PRELOAD = {"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"}


def preloaded():
    """Programs of sockets that work on siw likewise. There, too, nc's client does not end."""
    yield Case("nc under librspreload", "nc.traditional -l -p 7421", f"nc.traditional -q1 {AT} 7421",
               ends=(ANY, ANY), says="twenty words", stdin=b"twenty words", variables=PRELOAD,
               seconds=4)
    yield Case("iperf under librspreload", "iperf -s -p 7422", f"iperf -c {AT} -p 7422 -t 1",
               ends=(ENDED, 0), says="bits/sec", variables=PRELOAD, seconds=30)
    yield Case("iperf3 under librspreload", "iperf3 -s -1 -p 7424",
               f"iperf3 -c {AT} -p 7424 -t 1", says="receiver", variables=PRELOAD, seconds=30)
    yield Case("NPtcp under librspreload", "NPtcp -P 7423 -u 64 -n 20 -o /dev/null",
               f"NPtcp -h {AT} -P 7423 -u 64 -n 20 -o /dev/null", says="usec", variables=PRELOAD)


def migration():
    """QEMU moves a running machine (Debian's is built with RDMA), whose memory changes while it is
    sent: with CRC the connection ends now and then."""
    machine = "qemu-system-x86_64 -machine pc,accel=tcg -m 64 -nodefaults -display none -net none"
    yield Case("qemu migration", f"{machine} -incoming rdma:{AT}:7441", f"{machine} -monitor stdio",
               ends=(ENDED, 0), says="Migration status: completed",
               variables={"RDDP_VERBS_CRC": "off"},
               stdin=f"migrate rdma:{AT}:7441\ninfo migrate\nquit\n".encode())


def udapl():
    """uDAPL, whose server makes a queue pair by one id and accepts a connection with another."""
    yield Case("dtest", "dtest -P rddp -b 4096 -s", f"dtest -P rddp -b 4096 -h {AT}",
               says="DAPL Test Complete. PASSED",
               variables={"DAT_OVERRIDE": str(pathlib.Path(__file__).with_name("dat.conf"))})


# Immediate Data and atomics (RFC 7306).
EXTENSIONS = {"RDDP_VERBS_EXTENSIONS": "on"}


def qperf():
    """All tests with events, which end by a signal that ends ibv_get_cq_event, and two that poll. A
    server tells its client the port before it listens, so that a client that is quick is refused,
    and comes again. Not rc_bi_bw: its ends send whether or not the other has posted receives, which
    iWARP answers with a Terminate (RFC 5041 §7.2); InfiniBand's sender would try again."""
    for test in ("rc_lat", "rc_bw", "rc_rdma_read_bw", "rc_rdma_read_lat",
                 "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat",
                 "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap",
                 "ver_rc_fetch_add", "-cp1 rc_lat", "-cp1 rc_bw"):
        yield Case(f"qperf {test}", "qperf", f"qperf {AT} -cm1 -t 1 {test}", ends=(ENDED, 0),
                   seconds=20, variables=EXTENSIONS, tries=20)


def roce():
    """Programs that connect by numbers of queue pairs, on a device that looks like RoCE."""
    on = {"RDDP_ROCE": f"mlx5_0={AT}"}
    # The client of srq_pingpong leaves when it has received enough, with messages of the server's
    # on their way to its other queue pairs: those may find nobody, which ends the server.
    for kind, ends in (("rc", (0, 0)), ("uc", (0, 0)), ("srq", (ANY, 0))):
        yield pair(f"ibv_{kind}_pingpong, RoCE", f"ibv_{kind}_pingpong -g 0", variables=on,
                   ends=ends)
    yield pair("ibv_rc_pingpong -e, RoCE", "ibv_rc_pingpong -g 0 -e", variables=on)
    for more in ("", "-e", "-c"):
        yield pair(f"ibv_ud_pingpong {more}, RoCE", f"ibv_ud_pingpong -g 0 {more}", variables=on)
    yield pair("ibv_ud_pingpong, RoCE, IPv6", "ibv_ud_pingpong -g 0", variables={"RDDP_ROCE": "mlx5_0=::1"})
    for kind in ("send", "write", "read", "atomic"):
        yield pair(f"ib_{kind}_bw, RoCE", f"ib_{kind}_bw -d mlx5_0", "-n 200", variables=on)
        yield pair(f"ib_{kind}_lat, RoCE", f"ib_{kind}_lat -d mlx5_0", "-n 200", variables=on)
    for more in ("-a -n 200", "-e -n 200"):
        yield pair(f"ib_send_lat -c UD {more}, RoCE", "ib_send_lat -d mlx5_0 -c UD", more, variables=on)
    # No more messages than receives, and octets than the socket holds: the server waits for each,
    # and one that is lost would never come.
    yield pair("ib_send_bw -c UD, RoCE", "ib_send_bw -d mlx5_0 -c UD -s 64", "-n 200", variables=on)
    yield pair("ib_send_bw -c UD -q, RoCE", "ib_send_bw -d mlx5_0 -c UD -s 64", "-q 4 -n 100", variables=on)
    yield rping("by the connection manager, RoCE", "-V", variables=on)
    yield Case("rping, RoCE and iWARP", f"rping -s -a {AT}", f"env RDDP_ROCE=mlx5_0={AT} rping -c -a {AT} -C 50")
    yield Case("ibv_rc_pingpong, RoCE, without a GID", "ibv_rc_pingpong", f"ibv_rc_pingpong {AT}",
               ends=(1, 1), says="Failed to modify QP to RTR", variables=on)
    yield Case("ibv_devinfo, RoCE", "ibv_devinfo -d mlx5_0", says="transport:\t\t\tInfiniBand (0)",
               variables=on)
    yield Case("ibv_devices, RoCE, a bad list", "ibv_devices", says="is not NAME=ADDRESS",
               variables={"RDDP_ROCE": "mlx5_0"})


CASES = [
    Case("ibv_devices", "ibv_devices", says="rddp0"),
    Case("ibv_devinfo", "ibv_devinfo -v", says="PORT_ACTIVE"),
    rping("plain", "", says=""),
    rping("verify", "-V -S 65000"),
    rping("verbose", "-v -d"),
    rping("persistent server", "-V", server="-P", ends=(ENDED, 0)),
    rping("port", "-p 7201"),
    rping("with a log", "", says="rnic::connection: connected",
          variables={"RDDP_LOG": "rnic::connection=debug"}),
    rping("IPv6", "-V", at="::1"),
    Case("rping from an address", f"rping -s -a {AT}", f"rping -c -I {AT} -a {AT} -C 20"),
    Case("rping on all addresses", "rping -s -a 0.0.0.0", f"rping -c -a {AT} -C 20"),
    # As with the kernel's iWARP devices, rdma_establish answers EINVAL.
    Case("rping -q", f"rping -s -q -a {AT}", f"rping -c -q -a {AT} -C 20", ends=(ANY, ANY), says="rdma_establish: Invalid argument",
         seconds=5),
    Case("ucmatose", "ucmatose", f"ucmatose -s {AT}"),
    Case("ucmatose, many", "ucmatose -c 50 -C 100 -S 4000",
         f"ucmatose -s {AT} -c 50 -C 100 -S 4000"),
    Case("ucmatose, migrated", "ucmatose -m", f"ucmatose -m -s {AT}"),
    Case("cmtime", "cmtime -c 100", f"cmtime -s {AT} -c 100", ends=(ENDED, 0)),
    Case("rdma_server", "rdma_server", f"rdma_client -s {AT}"),
    Case("rdma_xserver", "rdma_xserver -c r", f"rdma_xclient -s {AT} -c r"),
    Case("rdma_xclient, XRC", f"rdma_xclient -s {AT} -c x", ends=(255, None),
         says="rddp: this device has no XRC"),
    Case("rdma_xserver, XRC", "rdma_xserver -c x", ends=(255, None), seconds=5,
         says="rddp: this device has no XRC"),
    Case("udaddy", "udaddy", ends=(255, None), seconds=5,
         says="failure trying to listen: Operation not supported"),
    Case("udaddy, client", f"udaddy -s {AT}", ends=(255, None), seconds=5,
         says="rddp: this device has no datagrams"),
    Case("udpong", "udpong", f"udpong -s {AT}", ends=(255, 255), seconds=5,
         says="rddp: this device has no datagrams"),
    Case("mckey", "mckey -m 224.0.0.5", ends=(255, None), says="not supported"),
    *perftest(),
    *interrupted(3),
    *rsockets(),
    *preloaded(),
    pair("ib_atomic_bw", "ib_atomic_bw -R", "-n 200", variables=EXTENSIONS),
    pair("ib_atomic_bw, compare", "ib_atomic_bw -R -A CMP_AND_SWAP", "-n 200", variables=EXTENSIONS),
    pair("ib_atomic_lat", "ib_atomic_lat -R", "-n 200", variables=EXTENSIONS),
    *qperf(),
    *fio(),
    *libfabric(),
    *udapl(),
    *migration(),
    *roce(),
]

# Cases that take minutes.
LONG = [
    *(pair(f"ib_{kind}_lat -a", f"ib_{kind}_lat -R", "-a -n 20", seconds=300)
      for kind in ("send", "write", "read")),
    rping("100,000 times", "-V -C 100000", seconds=600),
    *interrupted(60),
]


def start(command, case, rddp, folder, name):
    """Starts a command in a group of its own, with its output in a file. A server's standard input
    stays open."""
    command = command.replace("FOLDER", str(folder))
    program = command.split()[0]
    if not shutil.which(program):
        return None
    out = open(folder / f"{name}.log", "w+")
    process = subprocess.Popen([rddp, "run", "--verbs", "--", *command.split()],
                               stdin=subprocess.PIPE if case.stdin else None, stdout=out,
                               stderr=subprocess.STDOUT, start_new_session=True, cwd=folder,
                               env=os.environ | case.variables)
    if case.stdin and name == "client":
        process.stdin.write(case.stdin)
        process.stdin.close()
    return process, out


def finish(started, until):
    """Waits for the end of a program. Returns its status, or `ENDED` if it had to be ended."""
    process, _ = started
    try:
        return process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return ENDED


def listens(started, seconds=3):
    """Waits until a server has a socket that listens, as far as that can be seen."""
    process, _ = started
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        said = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True).stdout
        if any(of_session(int(pid), process.pid) for pid in re.findall(r"pid=(\d+),", said)):
            return
        time.sleep(0.05)


def of_session(pid, session):
    """Whether a process is a program that was started, or a child of it."""
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def said(started):
    started[1].seek(0)
    return started[1].read()


def run(case, rddp, folder):
    """Runs a case. Returns what is wrong, or None; `missing` names a program that is not there."""
    commands = [command for command in (case.server, case.client) if command]
    for command in commands:
        if not shutil.which(command.split()[0]):
            return f"missing {command.split()[0]}"
    until = time.monotonic() + case.seconds
    programs = [start(case.server, case, rddp, folder, "server")]
    if case.client:
        listens(programs[0])
        programs.append(start(case.client, case, rddp, folder, "client"))
    if case.interrupt:
        time.sleep(case.interrupt)
        programs[-1][0].send_signal(case.by)
    ends = [None, None]
    for place in reversed(range(len(programs))):
        # A server that serves for ever is not waited for long once its client is done.
        limit = until if case.ends[place] != ENDED else time.monotonic() + 2
        ends[place] = finish(programs[place], limit)
    wanted = [case.ends[0], case.ends[1] if case.client else None]
    text = "\n".join(said(program)[-1500:] for program in programs)
    if any(want not in (ANY, end) for want, end in zip(wanted, ends)):
        return f"ended with {ends}, not {wanted}\n{text}"
    if not any(case.says in said(program) for program in programs):
        return f"does not say {case.says!r}\n{text}"
    return None


def main():
    rddp, words = pathlib.Path(sys.argv[1]).resolve().with_name("rddp"), sys.argv[2:]
    cases, words = (LONG, words[1:]) if words[:1] == ["long"] else (CASES, words)
    failed = missing = ran = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case in cases:
            if words and not any(word in case.name for word in words):
                continue
            fault = run(case, rddp, folder)
            for _ in range(1, case.tries):
                if not fault or not any(word in fault for word in BY_CHANCE):
                    break
                fault = run(case, rddp, folder)
            ran += 1
            if fault and fault.startswith("missing "):
                missing += 1
                print(f"programs: {case.name}: {fault}")
            elif fault:
                failed += 1
                print(f"programs: {case.name}: {fault}")
    print(f"programs: {ran} cases, {failed} failed, {missing} could not be run")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())

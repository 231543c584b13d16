#!/usr/bin/env python3
"""Counts the system calls of a message of perftest on librddp_verbs.so, with strace.

    cost.py LIBRARY

The number of sleeps depends on how busy the machine is. So a trace is cut into pieces of `PIECE`
messages, and the cheapest piece is compared with the limits, as in the test of the sockets' cost.
One call may send many messages of 64 KiB: there are enough of them for pieces behind the startup.
"""

import collections
import pathlib
import re
import shutil
import sys
import tempfile

import programs

PIECE = 100
TRIES = 3
# A program and its options, the ends that are looked at, and limits of calls a message, "all"
# among them. A message is a call that sends.
COSTS = [
    ("ib_send_lat", "-e -s 64 -n 2000", ("server", "client"),
     {"all": 4.2, "fcntl": 0.1, "write": 0.1, "preadv2": 0.1, "epoll_ctl": 0.05}),
    ("ib_write_lat", "-s 64 -n 2000", ("server", "client"),
     {"epoll_ctl": 0.05, "futex": 0.1, "sched_yield": 0.1}),
    ("ib_send_bw", "-s 65536 -n 20000", ("client",), {"getsockopt": 0.1}),
    ("ib_write_bw", "-s 65536 -n 20000", ("client",), {"getsockopt": 0.1}),
]


def pieces(trace):
    """Yields the counts of calls of each piece. A call whose line is cut in two by another
    thread's counts once."""
    counts, sent = collections.Counter(), 0
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(r"\d+\s+(\w+)\(", line)
        if not call:
            continue
        counts[call[1]] += 1
        sent += call[1] in ("sendto", "sendmsg")
        if sent == PIECE:
            yield counts
            counts, sent = collections.Counter(), 0


def fault(trace, limits):
    """Returns what is wrong with an end, or None."""
    found = sorted(pieces(trace), key=lambda counts: counts.total())
    if len(found) < 2:
        return f"{len(found)} pieces, none of them behind the startup"
    cheapest = found[0]
    for name, limit in limits.items():
        count = cheapest.total() if name == "all" else cheapest[name]
        if count > limit * PIECE:
            return f"{count} x {name} in {PIECE} messages, at most {limit * PIECE:.0f}: {cheapest}"
    return None


def measure(rddp, folder, program, options, ends, limits):
    traced = f"strace -f -qq -o FOLDER/END.trace {program} -R {options}"
    case = programs.Case(program, traced.replace("END", "server"),
                         f"{traced.replace('END', 'client')} {programs.AT}", seconds=120)
    wrong = programs.run(case, rddp, folder)
    if wrong:
        return wrong
    faults = [(end, fault(folder / f"{end}.trace", limits)) for end in ends]
    return "; ".join(f"{end}: {wrong}" for end, wrong in faults if wrong)


def main():
    rddp = pathlib.Path(sys.argv[1]).resolve().with_name("rddp")
    for program in ("strace", "ib_send_lat"):
        if not shutil.which(program):
            print(f"cost: {program} is missing")
            return 1
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for program, options, ends, limits in COSTS:
            # An end that had no processor for a while makes more calls than it needs.
            for _ in range(TRIES):
                wrong = measure(rddp, pathlib.Path(folder), program, options, ends, limits)
                if not wrong:
                    break
            if wrong:
                failed += 1
                print(f"cost: {program} {options}: {wrong}")
    print(f"cost: {f'{failed} failed' if failed else 'no more system calls than there may be'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

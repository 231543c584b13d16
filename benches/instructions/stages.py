"""Instructions by stage: each line of a profile counts for the file that it was inlined from.

Lines of crates and of std count for the file of the function that they stand in; those of functions
that are std's alone for their callers, by what each has called; those of the C library by name.
"""

import collections
import json
import re
import subprocess
import sys

STAGES = ("interface", "protocol", "transport", "movement", "allocator", "other")

# The wires of messages, as scenarios and as the page name them.
WIRES = {"iwarp": "iWARP (CRC)", "raw": "plain TCP", "record": "records", "udp": "UDP"}

# The stage of each file of this tree, by the beginning of its path: the first that fits.
PATHS = (
    ("mpa/src/crc", "movement"),
    ("rnic/src/mem/grant", "movement"), ("rnic/src/mem/octets", "movement"), ("fault-guard/", "movement"),
    ("rnic/src/mem/io", "transport"), ("rnic/src/mem/calls", "transport"), ("rnic/src/mem/datagrams", "transport"),
    ("rnic/src/io/", "transport"), ("rnic/src/conn/", "transport"), ("rnic/src/sys", "transport"),
    ("rnic/src/wire/watch", "transport"), ("capture/", "transport"),
    ("mpa/", "protocol"), ("ddp/", "protocol"), ("rdmap/", "protocol"), ("iwarp/", "protocol"),
    ("rdma/src/datagram", "protocol"),
    ("rnic/src/wire/", "protocol"), ("rnic/src/mem/", "protocol"), ("rnic/src/scratch", "protocol"),
    ("rnic/", "interface"), ("rdma/", "interface"), ("stat/", "interface"), ("benches/", "interface"),
)

# Stages of functions that are not this tree's, by their names.
FUNCTIONS = (
    (r"mem(p?cpy|move|set|cmp)|crc_?fast|crc32", "movement"),
    (r"malloc|realloc|calloc|^c?free$|_int_free|__rdl_|__rust_(re|de)?alloc|__rust_no_alloc", "allocator"),
    (r"^(__)?(send|recv|poll|ppoll|epoll|ioctl|[gs]etsockopt|clock_gettime|syscall|errno)|asynccancel|cancel|vdso", "transport"),
)

LINE = re.compile(r"(ob|fl|fi|fe|fn|cob|cfl|cfi|cfn)=\((\d+)\)(?: (.*))?$")
FAMILY = {"ob": "ob", "cob": "ob", "fn": "fn", "cfn": "fn"}


class Profile:
    """What a profile says: own instructions by place, and calls."""

    def __init__(self, text, root):
        # Instructions by file, function, and the function's own file.
        self.own = collections.Counter()
        # Of each function: its callers, by the instructions that their calls took.
        self.callers = collections.defaultdict(collections.Counter)
        # The own file of each function.
        self.home = {}
        self.root = str(root) + "/"
        self._read(text)

    def _read(self, text):
        names, file, function, callee = collections.defaultdict(dict), None, None, None
        for line in text.splitlines():
            if found := LINE.match(line):
                kind, number, name = found.groups()
                family = names[FAMILY.get(kind, "file")]
                if name is not None:
                    family[number] = name
                if kind in ("fl", "fi", "fe"):
                    file = family[number]
                    own = file if kind == "fl" else own
                elif kind == "fn":
                    function = family[number]
                    self.home[function] = own
                elif kind == "cfn":
                    callee = family[number]
            elif re.match(r"[+*\-\d]", line):
                count = int(line.split()[1])
                if callee is not None:
                    self.callers[callee][function] += count
                    callee = None
                else:
                    self.own[file, function] += count

    def stages(self):
        """Returns the instructions of each stage."""
        found = collections.Counter()
        for (file, function), count in self.own.items():
            for stage, share in self._stages_of(file, function, frozenset()).items():
                found[stage] += count * share
        return found

    def _stages_of(self, file, function, seen):
        stage = named(function) or self._of_path(file) or self._of_path(self.home[function])
        if stage:
            return {stage: 1.0}
        callers = {caller: count for caller, count in self.callers[function].items() if caller not in seen and caller in self.home}
        total = sum(callers.values())
        if not total or not is_generic(function):
            return {"other": 1.0}
        shares = collections.Counter()
        for caller, count in callers.items():
            for stage, share in self._stages_of(self.home[caller], caller, seen | {function}).items():
                shares[stage] += share * count / total
        return shares

    def _of_path(self, file):
        path = file.removeprefix(self.root)
        return next((stage for begin, stage in PATHS if path.startswith(begin)), None)


def named(function):
    """Returns the stage of a function of the C library or of another crate."""
    if "rddp_" in function:
        return None
    return next((stage for pattern, stage in FUNCTIONS if re.search(pattern, function)), None)


def is_generic(function):
    """Returns whether a function is of Rust, so that its callers say what it is for."""
    return "::" in function


def stages_of(profile, ops, root):
    """Returns the instructions of one operation, by stage, the last of them the sum."""
    found = Profile(profile, root).stages()
    counts = {stage: found[stage] / ops for stage in STAGES}
    return counts | {"sum": sum(found.values()) / ops}


def costs(program, name):
    """Returns what a scenario costs without callgrind: system calls of a message, and time."""
    told = subprocess.run([program, "--costs", name], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(told)


HEAD = """<!-- Written by benches/instructions/run --stages --docs: change that, and not this page. -->
# Measurements of a message's cost, by stage

A message from one queue pair to another over loopback, both ends in one thread: a receive and a request are posted, and both
complete. `benches/instructions/run --stages --docs` measures all of it and writes this page.

Measured on {date} at commit `{commit}`: {processor}, {processors} processors (virtual: {virtual}), {memory_gib:g} GiB,
Linux {kernel}, {rust}; load before the run {load:.2f}.

"""

TAIL = """
## What the stages are

Each line of callgrind's profile counts for the stage of the file that it was inlined from; lines of std and of other crates for
the function that they stand in, and functions that are std's alone for their callers. The stages of files are in
[stages.py](../../benches/instructions/stages.py).

| stage | what |
|---|---|
| interface | the program's calls: posting, polling, the queues, completions |
| protocol | headers, records and bundles; MPA, DDP and RDMAP; the checks of memory |
| transport | the wrappers of system calls, and of waiting for sockets |
| movement | copies in user space, and the CRC |
| allocator | memory of the heap |

All instructions are those of user space. They are the same in two runs (within a thousandth), which the command checks. The
system calls are those that send and receive; user and system time are the process's (`getrusage`), of the same loop without callgrind, and vary
with the machine: the kernel's share of a message, its copies among them, is in them alone.

An adapter would take over protocol, transport and movement, and the kernel's part; interface is what a program keeps. The
figures show where the cost lies, and nothing here claims an adapter's gain: none was there. CRC by this processor's
instructions costs less than by valgrind's.
"""


def table(rows):
    """Returns the table of scenarios, one a line."""
    titles = ["message", *STAGES, "sum", "send calls", "receive calls", "user, µs", "system, µs"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for name, counts, of in rows:
        figures = [f"{counts[stage]:,.0f}" for stage in (*STAGES, "sum")]
        figures += [f"{of['send_calls']:.3g}", f"{of['receive_calls']:.3g}", f"{of['user_us']:.2f}", f"{of['system_us']:.2f}"]
        lines.append("| " + " | ".join([title(name), *figures]) + " |")
    return "\n".join(lines) + "\n"


def title(name):
    wire, _, size = name.partition("_")
    sizes = {"64": "64 octets, alone", "64_by_64": "64 octets, 64 at a time", "64k": "64 KiB"}
    return f"{WIRES[wire]}, {'65,000 octets' if name == 'udp_64k' else sizes[size]}"


# Share of the instructions that may have no stage.
MOST_OTHER = 0.05
# Share by which two runs may differ: the CRC looks at how its octets lie.
SAME = 0.001


def fault(name, counts, again):
    """Returns what is wrong with the counts of two runs, if anything is."""
    if any(abs(count - again[stage]) > max(1, SAME * count) for stage, count in counts.items()):
        return f"{name}: two runs differ: {counts} and {again}"
    if counts["other"] > MOST_OTHER * counts["sum"]:
        return f"{name}: {counts['other'] / counts['sum']:.1%} of the instructions have no stage: add files to stages.py"
    return None


if __name__ == "__main__":
    sys.exit("benches/instructions/run --stages")

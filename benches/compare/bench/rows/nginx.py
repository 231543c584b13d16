"""nginx in DDPMODE beside TCP, in processor time of each end: a connection a request (ab),
and bulk over few (wrk)."""

import os
import re
import resource
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..instrument import Fault
from ..plan import KIB, ratios
from ..result import Item
from .kind import RowKind

SIZES = {"small": KIB, "bulk": 100 * 1000}
TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """A load on nginx: the program that asks, and how to read the number of its answers."""

    name: str
    words: Callable
    answers: str
    at_most: float


LOADS = [
    Load("ab, a connection a request",
         lambda at, quick: ("ab", "-q", "-n", "300" if quick else "1000", "-c", "8", f"http://{at}/small"),
         r"Complete requests: +(\d+)(?=[^~]*Failed requests: +0\n)", at_most=2.5),
    Load("wrk, 100 KB",
         lambda at, _: ("wrk", "-t1", "-c4", "-d1s", f"http://{at}/bulk"), r"(\d+) requests in", at_most=1.3),
]
ENDS = ("server", "client")


@dataclass
class Cost:
    """Seconds of one end: of its processor, and their split by the kernel's ticks."""

    all: float
    user: float
    system: float

    def __sub__(self, before):
        return Cost(self.all - before.all, self.user - before.user, self.system - before.system)


def measure(plan, row):
    ddp = (*plan.preloaded, "RDDP_FAMILY=ddp")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, size in SIZES.items():
            (folder / name).write_bytes(os.urandom(size))
        sides = [stack.enter_context(nginx(folder, words)) for words in ((), ddp)]
        for load in LOADS:
            slices = [lambda side=side, load=load: side.take(load, plan.quick) for side in sides]
            row.items += items_of(load, plan.turns(slices, plan.slow_rounds))


class Nginx:
    def __init__(self, words, process, at):
        self.words, self.process, self.at = words, process, at

    def cost(self):
        """Returns the cost of the server so far."""
        about = Path(f"/proc/{self.process.pid}")
        fields = (about / "stat").read_text().rpartition(")")[2].split()
        return Cost(int((about / "schedstat").read_text().split()[0]) / 1e9, int(fields[11]) * TICK, int(fields[12]) * TICK)

    def take(self, load, quick):
        """Runs one slice, and returns the number of answers and the cost of each end."""
        before = (self.cost(), of_children())
        asked = subprocess.run([*self.words, *load.words(self.at, quick)], capture_output=True, text=True, timeout=60,
                               check=False)
        after = (self.cost(), of_children())
        found = re.search(load.answers, asked.stdout)
        if asked.returncode != 0 or not found or int(found[1]) == 0:
            raise Fault(f"{load.name}: {asked.stdout[-300:]}{asked.stderr[-300:]}")
        return int(found[1]), *(late - early for early, late in zip(before, after))


@contextmanager
def nginx(folder, words):
    """Starts a server without a master process, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = f"127.0.0.1:{free.getsockname()[1]}"
    own = Path(tempfile.mkdtemp(dir=folder))
    paths = "".join(f"{kind}_temp_path {own}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (own / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {own}/pid; error_log stderr;\n"
        f"events {{ worker_connections 512; }}\n"
        f"http {{ access_log off; sendfile on; {paths} server {{ listen {at}; root {folder}; }} }}\n")
    process = subprocess.Popen([*words, "nginx", "-c", own / "nginx.conf", "-e", "stderr"], stderr=subprocess.DEVNULL)
    try:
        await_answer(process, words, at)
        yield Nginx(words, process, at)
    finally:
        process.terminate()
        process.wait()


def await_answer(process, words, at):
    for _ in range(100):
        asked = [*words, "ab", "-q", "-n", "1", f"http://{at}/small"]
        if subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0:
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise Fault("nginx does not answer")


def of_children():
    """Returns the cost of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(used.ru_utime + used.ru_stime, used.ru_utime, used.ru_stime)


def items_of(load, taken):
    """Makes items of slices [(TCP's, DDPMODE's)], each (answers, server, client)."""
    items = []
    for place, end in enumerate(ENDS, 1):
        each = [tuple(one[place].all / one[0] for one in pair) for pair in taken]
        sides = {name: f"{statistics.median(values) * 1e6:.1f} µs" for name, values in zip(("TCP", "DDPMODE"), zip(*each))}
        items.append(Item(f"{load.name}: {end}", ratios(each), at_most=load.at_most, sides=sides))
        items += [split(f"{load.name}: {end}, {kind}", taken, place, kind) for kind in ("user", "system")]
    return items


def split(what, taken, place, kind):
    """Makes an item of one ratio of all slices, since ticks are too coarse for a single slice."""
    tcp, ddp = (sum(getattr(pair[side][place], kind) for pair in taken) / sum(pair[side][0] for pair in taken)
                for side in (0, 1))
    sides = {"TCP": f"{tcp * 1e6:.1f} µs", "DDPMODE": f"{ddp * 1e6:.1f} µs"}
    return Item(what, [ddp / max(tcp, 1e-9)], sides=sides)


METHOD = """nginx, one process, and `ab` with eight connections at a time, each for one answer of 1 KiB, or `wrk` with four that stay, for
answers of 100 KB, which it reads 8 KB at a time with a FIONREAD after each; both ends plain, and both with the library and RDDP_FAMILY=ddp.
Slices take turns. A value is the ratio of an end's processor time for one answer; user and system time, which the kernel
counts in ticks, are of all slices together."""

ROWS = [RowKind("nginx", "nginx in DDPMODE: processor time of each end", METHOD, measure,
                packages=("nginx-light", "apache2-utils", "wrk"), page="sockets")]

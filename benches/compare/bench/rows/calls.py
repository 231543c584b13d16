"""What a call through librddp_sockets.so costs: ext-sockets/preload/benches/cost.rs by turns with and without."""

import json
import os
import subprocess

from ..instrument import Fault
from ..plan import medians
from ..result import Item
from .kind import RowKind

TURNS = 15
# Of a call that does nothing but come straight back.
REACH_NS = 10


def measure(plan, row):
    binary = built(plan)
    turns = plan.turns([lambda: run(binary), lambda: run(binary, str(plan.library))], rounds=3 if plan.quick else TURNS)
    for call in turns[0][0]:
        pairs = [(bare[call], loaded[call]) for bare, loaded in turns]
        sides = {name: f"{ns:.1f} ns" for name, ns in zip(("without", "with"), medians(pairs))}
        row.items.append(Item(call, [loaded - bare for bare, loaded in pairs], unit="ns more", at_most=REACH_NS, sides=sides))


def built(plan):
    words = ["cargo", "bench", "--package", "rddp-preload", "--bench", "cost", "--no-run", "--locked", "--quiet",
             "--message-format", "json"]
    done = subprocess.run(words, cwd=plan.root, stdout=subprocess.PIPE, text=True, check=True)
    made = [json.loads(line) for line in done.stdout.splitlines()]
    return next(message["executable"] for message in made
                if message.get("executable") and message["target"]["name"] == "cost")


def run(binary, library=None):
    """Nanoseconds by call."""
    environment = os.environ | {"RDDP_BENCH_CHILD": "1"} | ({"LD_PRELOAD": library} if library else {})
    done = subprocess.run([binary], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Fault(f"{binary}: {done.stderr.strip()}")
    lines = (line.rsplit(" ", 1) for line in done.stdout.splitlines())
    return {call: float(ns) for call, ns in lines}


METHOD = """Calls that have nothing to do and come straight back, on a plain TCP socket, on one processor: the best of eight batches
of 50,000 in a process, processes with and without the library by turns (`ext-sockets/preload/benches/cost.rs`)."""

ROWS = [RowKind("calls", "Nanoseconds that the library adds to a call", METHOD, measure, page="sockets")]

"""Registering memory."""

import json
import subprocess

from ..plan import medians, ratios
from ..result import Item
from .kind import RowKind

MIB = 1024


def measure(plan, row):
    runs = [registrations(plan) for _ in range(plan.slow_rounds)]
    whole = [run["register", MIB << 20] for run in runs]
    small = [run["register", 1 << 20] for run in runs]
    row.items.append(Item("register 1 GiB of the program's own", micros(whole), unit="µs", at_most=100))
    pairs = list(zip(micros(small), micros(whole)))
    sides = dict(zip(("1 MiB", "1 GiB"), (f"{value:.1f} µs" for value in medians(pairs))))
    row.items.append(Item("register 1 GiB, against 1 MiB", ratios(pairs), unit="x 1 MiB", sides=sides))
    row.items.append(Item("memory touched by that", [run["touched"] / 1024 for run in whole], unit="KiB", at_most=256))
    for how, what in (("allocate", "allocate and register 1 GiB"), ("populate", "the same with `populate`"),
                      ("mlock", "the same with `mlock`")):
        values = micros(run[how, MIB << 20] for run in runs if (how, MIB << 20) in run)
        if values:
            row.items.append(Item(what, values, unit="µs"))
        else:
            row.problem = f"{how}: this host does not allow it (memory, or RLIMIT_MEMLOCK)"


def micros(runs):
    return [run["seconds"] * 1e6 for run in runs]


def registrations(plan):
    done = subprocess.run([plan.binary, "register", str(MIB)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          timeout=60, check=True)
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["how"], line["octets"]): line for line in lines}


METHOD = """A fresh process each time. Memory touched is the growth of the resident set while it is registered; a few
pages are the process's own."""

ROWS = [RowKind("register", "Registering 1 GiB", METHOD, measure)]

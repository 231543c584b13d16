"""Lengths of slices, and their order, for all rows alike."""

import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from .instrument import Instrument
from .result import CannotMeasure

KIB, MIB = 1 << 10, 1 << 20
# Sizes of the charts and of the comparisons with other stacks.
SIZES = [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]


@dataclass
class Plan:
    """The plan of a measurement, given to every row."""

    root: Path
    target: Path
    rounds: int
    # Seconds of a slice of bandwidth, and of one of latency.
    ms: int
    latency_ms: int
    quick: bool

    @property
    def sizes(self):
        return SIZES[::4] if self.quick else SIZES

    @property
    def slow_rounds(self):
        """Returns the number of rounds for a peer that starts anew for each slice."""
        return min(self.rounds, 9)

    @property
    def binary(self):
        return str(self.target / "release" / "rddp-compare")

    @property
    def library(self):
        return self.target / "release" / "librddp_sockets.so"

    @property
    def preloaded(self):
        """Returns the words before the command of a program that runs with the library."""
        return ("env", f"LD_PRELOAD={self.library}")

    def instrument(self, **options):
        """Starts a pair of our processes; takes an address, and words before their commands."""
        return Instrument(self.binary, **options)

    def compare(self, base, ours, rounds=None):
        """Runs slices of both in turn, and returns [(base, ours)]."""
        return self.turns([base, ours], rounds)

    def turns(self, kinds, rounds=None):
        """Runs slices of each kind in turn, the order changing each round, and returns [(first,
        second, ...)]. The first slice of each is not counted: in it TCP finds its window, and
        memory gets its pages."""
        for take in kinds:
            take()
        taken = []
        for number in range(rounds or self.rounds):
            order = [(number + place) % len(kinds) for place in range(len(kinds))]
            slices = {kind: kinds[kind]() for kind in order}
            taken.append(tuple(slices[kind] for kind in range(len(kinds))))
        return taken


def apart():
    """Returns the words that keep each end on a processor of its own."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise CannotMeasure("one processor: ends cannot be kept apart")
    passive, active = (("taskset", "-c", str(number)) for number in processors[:2])
    return {"server_in": passive, "client_in": active}


def together():
    """Returns the words that keep both ends on one processor."""
    words = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    return {"server_in": words, "client_in": words}


def ratios(pairs):
    return [ours / base for base, ours in pairs]


def medians(taken):
    """Returns the median of each kind of slice."""
    return tuple(map(statistics.median, zip(*taken)))


def size_name(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} octet{'s' if size > 1 else ''}"


def rate_name(octets_per_s):
    """Returns a bandwidth as text."""
    return f"{octets_per_s / 1e9:.2f} GB/s" if octets_per_s >= 1e8 else f"{octets_per_s / 1e6:.1f} MB/s"


def time_name(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} µs"


def receives_of(size, depth):
    """Returns the number of receives that a program posts for a flow of Sends. Its peers wait when
    they have used them up, so for short messages there are as many as TCP would hold."""
    return 2048 if size <= 16 * KIB else 4 * depth


def batch_of(size):
    """Returns the number of messages of that size that a program posts at once: up to 256 KiB."""
    return max(1, min(16, 256 * KIB // size))

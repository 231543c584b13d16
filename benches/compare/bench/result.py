"""Results: rows of items, each a list of ratios and the goal that they are compared with."""

import math
import statistics
from dataclasses import asdict, dataclass, field


class CannotMeasure(Exception):
    """This host does not allow the measurement. The table says so, and it is no failure."""


@dataclass
class Item:
    """One figure: the ratios of neighbouring slices (or plain values, by `unit`), and the goal that
    they are compared with."""

    what: str
    values: list
    unit: str = "x TCP"
    # The goal, as a lower or an upper limit; without either, the item is for information only.
    at_least: float | None = None
    at_most: float | None = None
    # The two sides of the ratios in their own unit, as medians: {"TCP": "3.51 GB/s", ...}.
    sides: dict = field(default_factory=dict)
    # Seconds of processor time for a GB, of bandwidth: by end, pairs as the ratios are of.
    costs: dict = field(default_factory=dict)
    # True for differences of a few thousandths: more digits, and the interval of the median instead
    # of least and greatest.
    fine: bool = False
    # Items of one group share a line of the table, which shows the worst of them.
    group: str = ""

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def interval(self):
        """Returns the interval in which the median lies with 95 %, whatever the distribution: from
        one value to another in order of size."""
        ordered, count = sorted(self.values), len(self.values)
        below, outside = -1, 0.0
        while (outside := outside + math.comb(count, below + 1) / 2 ** count) <= 0.025:
            below += 1
        return (ordered[below], ordered[-1 - below]) if below >= 0 else (ordered[0], ordered[-1])

    @property
    def swings(self):
        """Returns whether the ratios are of more than one state of the machine: their median says
        little then."""
        return self.unit.startswith("x ") and not self.fine and min(self.values) < 0.75 * self.median

    @property
    def reach(self):
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else ""

    @property
    def reached(self):
        """Returns whether the goal is reached; None if there is none."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return self.median <= self.at_most if self.at_most is not None else None

    @property
    def margin(self):
        """Returns the factor by which the goal is exceeded; below 1 it is not reached."""
        if self.at_least is not None:
            return self.median / self.at_least if self.at_least else 1.0
        # A negative value, as a difference may be, exceeds the goal by as much as can be.
        if self.at_most and self.median <= 0:
            return math.inf
        return self.at_most / self.median if self.at_most else 1.0

    def as_dict(self):
        return asdict(self) | {"median": self.median, "reached": self.reached}

    @classmethod
    def from_dict(cls, stored):
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})


@dataclass
class Row:
    """One row of the table, with a goal to reach."""

    name: str
    title: str
    method: str
    items: list = field(default_factory=list)
    # Of charts: {"chart": "bandwidth", "line": "TCP", "points": [[size, value], ...]}.
    series: list = field(default_factory=list)
    # The reason why there are no items, or not all.
    problem: str = ""
    # True if the problem is a fault of what is measured, and not missing rights on this host.
    faulty: bool = False
    seconds: float = 0.0
    # When, and of which commit, where rows of several runs are on a page.
    measured: str = ""

    def as_dict(self):
        return asdict(self) | {"items": [item.as_dict() for item in self.items]}

    @classmethod
    def from_dict(cls, stored):
        fields = {name: stored[name] for name in cls.__dataclass_fields__ if name in stored}
        return cls(**fields | {"items": [Item.from_dict(item) for item in stored["items"]]})

    def lines(self):
        """Returns the items for the table: (item, size of its group, number of those
        that reach the goal)."""
        groups = {}
        for number, item in enumerate(self.items):
            groups.setdefault(item.group or number, []).append(item)
        for items in groups.values():
            worst = min(items, key=lambda item: item.margin)
            yield worst, len(items), sum(item.reached is not False for item in items)

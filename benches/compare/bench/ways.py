"""Ways of measuring bandwidth, and the items made of slices of it."""

from dataclasses import dataclass

from .plan import apart, medians, rate_name, ratios, together
from .result import Item

ENDS = ("sender", "receiver")


@dataclass
class Way:
    """How the ends wait, and where they are kept."""

    name: str
    wait: str
    where: dict
    # True if what a row must reach has to be reached in this way.
    demanded: bool


def ways():
    """Returns the ways in which bandwidth is measured."""
    return [
        Way("both ends asleep while they wait, apart", "sleep", apart(), True),
        Way("both ends polling, apart", "poll", apart(), True),
        Way("both ends asleep while they wait, together", "sleep", together(), False),
        Way("both ends polling, together", "poll", together(), False),
    ]


def turns(plan, lanes, rounds=None):
    """Lets slices of lanes take turns, the first of which is the base; returns [(Flow, ...)]."""
    return plan.turns([lambda lane=lane: lane.flow(plan.ms) for lane in lanes], rounds)


def pairs_of(taken, place):
    """Returns the slices of one lane beside those of the first."""
    return [(flows[0], flows[place]) for flows in taken]


def item(what, pairs, names=("TCP", "rddp"), **more):
    """Returns an item of bandwidth, with what it costs either end."""
    rates = [(base.rate, ours.rate) for base, ours in pairs]
    costs = {
        end: [[round(getattr(flow, end) * 1e9, 4) for flow in pair] for pair in pairs]
        for end in ENDS
    }
    return Item(
        what,
        ratios(rates),
        sides=dict(zip(names, map(rate_name, medians(rates)))),
        costs=costs,
        **more,
    )


def cost_item(what, pairs, of, **more):
    """Returns an item of processor time: the sender's, the receiver's, or the `cost` of both."""
    costs = [(getattr(base, of), getattr(ours, of)) for base, ours in pairs]
    sides = {name: f"{cost * 1e9:.2f} s/GB" for name, cost in zip(("TCP", "rddp"), medians(costs))}
    return Item(what, ratios(costs), sides=sides, **more)

"""Tables of results, as text and Markdown."""

import os
import statistics
import textwrap

from .plan import medians, ratios

MARKS = {True: "yes", False: "no", None: "–"}
HEADS = ("what", "goal", "measured (median)", "{spread}", "both sides", "goal met")
COSTS = "seconds for a GB: sender; receiver"


def value_name(item):
    if item.unit.startswith("x "):
        return f"{item.median:.{digits(item)}f} {item.unit}"
    return f"{item.median:.3g} {item.unit}".strip()


def digits(item):
    return 4 if item.fine else 2


def spread_name(item):
    least, most = item.interval if item.fine else (min(item.values), max(item.values))
    if len(item.values) < 2:
        return ""
    return f"{least:.{digits(item)}f} … {most:.{digits(item)}f}{' *' if item.swings else ''}"


def sides_name(item):
    return ", ".join(f"{name} {value}" for name, value in item.sides.items())


def costs_name(item):
    """Returns what a GB costs each end: the base's processor time, ours, and the median ratio."""
    ends = []
    for pairs in item.costs.values():
        base, ours = medians(pairs)
        ends.append(f"{base:.2f}, {ours:.2f} ({statistics.median(ratios(pairs)):.2f} x)")
    return "; ".join(ends)


def terminal(row):
    """Returns a row as lines of text; a group is shown by its worst item."""
    out = [f"{row.name}: {row.title}"]
    for item, count, reached in row.lines():
        what = item.what if count == 1 else f"{reached} of {count} goals met, lowest: {item.what}"
        out.append(f"  {coloured(item.reached)}  {what}")
        spread = f"({spread_name(item)})" if len(item.values) > 1 else ""
        out.append(f"         {value_name(item):>18}  {item.reach:<8} {spread}  {sides_name(item)}")
        if item.costs:
            out.append(f"         {COSTS}: {costs_name(item)}")
    if row.problem:
        problem = f"not measured: {row.problem}"
        out.extend(textwrap.wrap(problem, 116, initial_indent="    !  ", subsequent_indent="       "))
    return "\n".join(out)


def coloured(reached):
    mark = f"{MARKS[reached]:>3}"
    if reached is None or not os.isatty(1) or "NO_COLOR" in os.environ:
        return mark
    return f"\033[{32 if reached else 31}m{mark}\033[0m"


def figures(row):
    """Returns all items of a row as a table in Markdown."""
    fine, costs = all(item.fine for item in row.items), any(item.costs for item in row.items)
    spread = "95 % interval" if fine else "least … most"
    heads = [head.format(spread=spread) for head in HEADS]
    lines = [heads, ["---"] * len(heads)]
    for item in row.items:
        lines.append([item.what, item.reach, value_name(item), spread_name(item), sides_name(item), MARKS[item.reached]])
    if costs:
        added = (COSTS, "---", *map(costs_name, row.items))
        lines = [[*line[:-1], cell, line[-1]] for line, cell in zip(lines, added)]
    return "\n".join("| " + " | ".join(line) + " |" if line[0] != "---" else "|" + "|".join(line) + "|" for line in lines) + "\n"


def summary(rows):
    """Returns a line for each row that has a goal."""
    lines = ["| row | what | goals met | figure with the least margin (its goal) |", "|---|---|---|---|"]
    for row in rows:
        demands = [item for item in row.items if item.reached is not None]
        if row.problem and not demands:
            lines.append(f"| {row.name} | {row.title} | not measured | {row.problem} |")
        if demands:
            reached = sum(item.reached for item in demands)
            tightest = min(demands, key=lambda item: item.margin)
            measured = f"{tightest.what}: {value_name(tightest)} ({tightest.reach})"
            lines.append(f"| {row.name} | {row.title} | {mark_of(reached, len(demands))} | {measured} |")
    return "\n".join(lines) + "\n"


def mark_of(reached, count):
    return f"all {count}" if reached == count else f"{reached} of {count}"


def markdown(rows):
    """Returns all tables in Markdown, without text around them."""
    tables = [f"## {row.name}: {row.title}\n\n{figures(row)}" for row in rows if row.items]
    return "\n".join([summary(rows), *tables])

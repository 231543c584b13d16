"""Tables of results, as text and Markdown."""

import os
import textwrap

MARKS = {True: "yes", False: "NO", None: "–"}
HEADS = "| what | reach | measured (median) | {spread} | both sides | reached |\n|---|---|---|---|---|---|"


def value_name(item):
    if item.unit.startswith("x "):
        return f"{item.median:.{digits(item)}f} {item.unit}"
    return f"{item.median:.3g} {item.unit}".strip()


def digits(item):
    return 4 if item.fine else 2


def spread_name(item):
    least, most = item.interval if item.fine else (min(item.values), max(item.values))
    return f"{least:.{digits(item)}f} … {most:.{digits(item)}f}" if len(item.values) > 1 else ""


def sides_name(item):
    return ", ".join(f"{name} {value}" for name, value in item.sides.items())


def terminal(row):
    """Returns a row as lines of text; a group is shown by its worst item."""
    out = [f"{row.name}: {row.title}"]
    for item, count, reached in row.lines():
        what = item.what if count == 1 else f"{reached} of {count} reach, worst: {item.what}"
        out.append(f"  {coloured(item.reached)}  {what}")
        spread = f"({spread_name(item)})" if len(item.values) > 1 else ""
        out.append(f"         {value_name(item):>18}  {item.reach:<8} {spread}  {sides_name(item)}")
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
    fine = all(item.fine for item in row.items)
    lines = [HEADS.format(spread="95 % interval" if fine else "least … most")]
    for item in row.items:
        cells = (item.what, item.reach, value_name(item), spread_name(item), sides_name(item), MARKS[item.reached])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(rows):
    """Returns a line for each row that has a goal."""
    lines = ["| row | what | figures that reach | the tightest of them |", "|---|---|---|---|"]
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
    return f"all {count}" if reached == count else f"**{reached} of {count}**"


def markdown(rows):
    """Returns all tables in Markdown, without text around them."""
    tables = [f"## {row.name}: {row.title}\n\n{figures(row)}" for row in rows if row.items]
    return "\n".join([summary(rows), *tables])

"""Tables for people."""

import os
import textwrap

MARKS = {True: "yes", False: "NO", None: "–"}


def value_name(item):
    if item.unit.startswith("x "):
        return f"{item.median:.2f} {item.unit}"
    return f"{item.median:.3g} {item.unit}".strip()


def spread_name(item):
    return f"{min(item.values):.2f} … {max(item.values):.2f}" if len(item.values) > 1 else ""


def sides_name(item):
    return ", ".join(f"{name} {value}" for name, value in item.sides.items())


def cells(row):
    """(what, reach, measured, spread, sides, reached) for each line of a row."""
    for item, count, reached in row.lines():
        what = item.what
        if count > 1:
            what = f"{item.group}, worst of {count}: {item.what}" if item.group not in item.what else f"worst of {count}: {item.what}"
            what += "" if reached == count or item.reached is None else f" ({reached} of {count} reach)"
        yield what, item.reach, value_name(item), spread_name(item), sides_name(item), item.reached


def terminal(row):
    """A row as lines of text."""
    colour = {True: "\033[32m", False: "\033[31m", None: ""} if _coloured() else dict.fromkeys(MARKS, "")
    out = [f"{row.name}: {row.title}"]
    for what, reach, measured, spread, sides, reached in cells(row):
        mark = f"{colour[reached]}{MARKS[reached]:>3}{colour[reached] and chr(27) + '[0m'}"
        out.append(f"  {mark}  {what}")
        out.append(f"         {measured:>18}  {reach:<8} ({spread})  {sides}")
    if row.problem:
        out.extend(textwrap.wrap(f"not measured: {row.problem}", 116, initial_indent="    !  ", subsequent_indent="       "))
    return "\n".join(out)


def _coloured():
    return os.isatty(1) and "NO_COLOR" not in os.environ


def markdown(rows):
    """One table of all rows."""
    out = ["| row | what | reach | measured (median) | least … most | both sides | reached |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        for what, reach, measured, spread, sides, reached in cells(row):
            out.append(f"| {row.name} | {what} | {reach} | {measured} | {spread} | {sides} | {MARKS[reached]} |")
        if row.problem:
            out.append(f"| {row.name} | {row.title} | | not measured | | {row.problem} | |")
    return "\n".join(out) + "\n"

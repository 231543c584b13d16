"""Lists of expected differences.

A paragraph is `# the reason` and, below it, `PART CASE: BARE -> FRAMED` for each case.
A case that differs in some runs only ends with `, sometimes`.
"""


class Expected:
    """One suite's list."""

    def __init__(self, path, more=()):
        """Reads the list, and those of `more`, whose lines count instead of the first one's."""
        self.cases = {}
        for path in [path, *more]:
            self.read(path)

    def read(self, path):
        reason = False
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            if not line.strip():
                reason = False
            elif line.startswith("#"):
                reason = True
            elif not reason:
                raise SystemExit(f"{path}:{number}: a case without a reason above it")
            else:
                self.add(line)

    def add(self, line):
        line, comma, _ = line.partition(", sometimes")
        named, _, pair = line.rpartition(": ")
        part, _, case = named.partition(" ")
        self.cases[part, case] = (tuple(pair.split(" -> ")), bool(comma))

    def unlisted(self, part, differ):
        """Returns the differences that are not listed, or not as they came out."""
        return {case: pair for case, pair in differ.items() if self.cases.get((part, case), (None,))[0] != pair}

    def stale(self, part, bare, differ):
        """Returns what is listed for this part and did not differ, though bare it was as listed."""
        return [f"{part} {case}" for (of, case), ((result, _), sometimes) in sorted(self.cases.items())
                if of == part and not sometimes and case not in differ and bare.get(case, "absent") == result]

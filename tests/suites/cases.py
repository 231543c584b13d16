#!/usr/bin/env python3
"""Runs Python tests and writes each result to a file at once: a hang or a crash costs one case.

    cases.py unittest|trial RESULTS MODULE...

RESULTS gets a line "> CASE" when a case begins and "CASE: RESULT" when it ends. Cases that are in
it already are left out: whoever finds that nothing is added any more ends the process, notes the
case that was begun and starts this again.
"""

import os
import pathlib
import re
import sys
import tempfile
import unittest

# Resources that CPython's tests may use (`-u` of its regrtest): no sound card, no gigabytes, no
# URLs.
RESOURCES = ["network", "cpu", "subprocess", "walltime"]
# Cases whose names match this are not run.
LEAVE_OUT = os.environ.get("LEAVE_OUT")
# From best to worst: the worst counts if a case has several results, such as a failure in a subtest
# and in the clean-up.
ORDER = ["pass", "skip", "fail"]


class Lines:
    """The reporter of both frameworks: appends to the file of results."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.worst = {}

    def begin(self, name):
        self.worst[name] = "pass"
        self.file.write(f"> {name}\n")

    def note(self, name, result):
        """Writes a result of a case, or of a fixture such as setUpClass, which has no beginning."""
        if name in self.worst:
            self.worst[name] = max(self.worst[name], result, key=ORDER.index)
        else:
            self.file.write(f"{name}: {result}\n")

    def end(self, name):
        self.file.write(f"{name}: {self.worst.pop(name)}\n")


def name_of(test):
    """Returns a case's name on one line, the same in each run."""
    name = test.id() if hasattr(test, "id") else str(test)
    return " ".join(name.split()).replace(": ", ":")


class UnittestResult(unittest.TestResult):
    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def startTest(self, test):
        super().startTest(test)
        self.lines.begin(name_of(test))

    def stopTest(self, test):
        super().stopTest(test)
        self.lines.end(name_of(test))

    def said(self, test, result, error):
        self.lines.note(name_of(test), result)
        if error:
            print(f"--- {name_of(test)}\n{self._exc_info_to_string(error, test)}", file=sys.stderr, flush=True)

    def addError(self, test, err):
        self.said(test, "fail", err)

    def addFailure(self, test, err):
        self.said(test, "fail", err)

    def addSubTest(self, test, subtest, err):
        if err:
            self.said(test, "fail", err)

    def addSkip(self, test, reason):
        self.said(test, "skip", None)

    def addUnexpectedSuccess(self, test):
        self.said(test, "fail", None)


def flat(suite):
    # A case may be iterable, too.
    if not isinstance(suite, unittest.TestSuite):
        yield suite
        return
    for part in suite:
        yield from flat(part)


def rest(suite, done):
    """Returns the cases that are not in `done`, where a name may stand for several of them."""
    for test in flat(suite):
        name = name_of(test)
        if LEAVE_OUT and re.search(LEAVE_OUT, name):
            continue
        if done.get(name):
            done[name] -= 1
        else:
            yield test


def run_unittest(modules, done, lines):
    from test import support
    support.use_resources = RESOURCES
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    unittest.TestSuite(rest(suite, done)).run(UnittestResult(lines))


def run_trial(modules, done, lines):
    from twisted.trial import reporter, runner, unittest as trial

    class TrialResult(reporter.Reporter):
        def __init__(self):
            super().__init__(sys.stderr)

        def startTest(self, test):
            super().startTest(test)
            lines.begin(name_of(test))

        def stopTest(self, test):
            super().stopTest(test)
            lines.end(name_of(test))

        def said(self, test, result, error=None):
            lines.note(name_of(test), result)
            if error is not None:
                print(f"--- {name_of(test)}\n{error}", file=sys.stderr, flush=True)

        def addError(self, test, error):
            self.said(test, "fail", error)

        def addFailure(self, test, error):
            self.said(test, "fail", error)

        def addSkip(self, test, reason):
            self.said(test, "skip")

        def addUnexpectedSuccess(self, test, todo=None):
            self.said(test, "fail")

        def addExpectedFailure(self, test, error, todo=None):
            pass

        def cleanupErrors(self, errors):
            print(errors, file=sys.stderr, flush=True)

    suite = runner.TestLoader().loadByNames(modules, recurse=True)
    chosen = trial.TestSuite(rest(suite, done))
    # A folder that an earlier start left looks as if it were in use: process numbers are the same
    # in each PID namespace.
    folder = os.path.join(tempfile.mkdtemp(dir="."), "trial")
    runner.TrialRunner(lambda *_, **__: TrialResult(), workingDirectory=folder).run(chosen)


def main():
    how, results, *modules = sys.argv[1:]
    done = {}
    for line in pathlib.Path(results).read_text().splitlines() if os.path.exists(results) else []:
        if not line.startswith("> "):
            name = line.rpartition(": ")[0]
            done[name] = done.get(name, 0) + 1
    sys.argv[1:] = []
    lines = Lines(results)
    {"unittest": run_unittest, "trial": run_trial}[how](modules, done, lines)
    lines.file.write("= end\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs rdma-core's own tests of its Python bindings on librddp_verbs.so, from Debian's package
python3-pyverbs, which is fetched and unpacked into a temporary folder.

    pyverbs.py LIBRARY [iwarp] [roce] [WORD]...

On an iWARP device, and on one that looks like RoCE with more modules, where neither is named. With
words, only tests with one of them in their names. Exit status: 0 all ended as expected, 1 some did
not, 2 the package could not be had. `pyverbs.expected`, and `pyverbs-roce.expected`, list the tests
that are not run, that skip themselves and that fail, and why; another end of a test is a failure,
also one that is better. A test that takes too long fails. The tests look for the device's address
in sysfs, where it has none: they get that of loopback.
"""

import fnmatch
import gzip
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import unittest

PACKAGE = "python3-pyverbs"
HERE = pathlib.Path(__file__).resolve().parent
ADDRESS = ("127.0.0.1", "02:00:00:00:00:00")
# Of each device: the words of `rddp run`, the modules, and what is expected.
DEVICES = {
    "iwarp": (["--verbs"], ("device", "pd", "cq", "cqex", "qp", "fork", "mr", "rdmacm"),
              HERE / "pyverbs.expected"),
    "roce": (["--roce", f"rddp0={ADDRESS[0]}"],
             ("addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mr", "parent_domain",
              "pd", "qp", "qpex", "relaxed_ordering", "shared_pd"), HERE / "pyverbs-roce.expected"),
}
SECONDS = 240
SECONDS_OF_TEST = 30


def expectations(device):
    """Lines of END PATTERN REASON as (end, pattern)."""
    lines = [line.split(None, 2) for line in DEVICES[device][2].read_text().splitlines()]
    return [(line[0], line[1]) for line in lines if line and not line[0].startswith("#")]


def expected(name, lines):
    """How a test is to end. The first line that matches counts."""
    for end, pattern in lines:
        if fnmatch.fnmatchcase(name, pattern):
            return end
    return "ok"


class Ends(unittest.TextTestResult):
    """Notes how each test ended."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.ends = {}

    def startTest(self, test):
        super().startTest(test)
        self.ends[test.id()] = "fails"
        signal.alarm(SECONDS_OF_TEST)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.ends[test.id()] = "ok"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.ends[test.id()] = "skips"


def tests_of(suite):
    for test in suite:
        yield from tests_of(test) if isinstance(test, unittest.TestSuite) else [test]


def give_up(*_):
    raise TimeoutError(f"not done after {SECONDS_OF_TEST} s")


def load(folder, device):
    """Tests of the device's modules; the suite's own `__init__` would load other devices' too."""
    sys.path[0] = str(folder)  # not the folder of this script, which has the name of the bindings
    sys.path.insert(1, str(folder / "tests"))
    sys.argv[1:] = []
    importlib.import_module("args_parser").parser.parse_args()
    package = types.ModuleType("tests")
    package.__path__ = [str(folder / "tests")]
    sys.modules["tests"] = package
    base = importlib.import_module("tests.base")
    base.RDMATestCase._get_ip_mac = lambda self, device, port, gid: self.args.append(
        [device, port, gid, *ADDRESS])
    for module in DEVICES[device][1]:
        module = importlib.import_module(f"tests.test_{module}")
        yield from tests_of(unittest.defaultTestLoader.loadTestsFromModule(module))


def run_inside(device, folder, words):
    """Runs the tests in this process, in which the library is. Returns the number of failures."""
    lines, failed, not_run = expectations(device), 0, 0
    signal.signal(signal.SIGALRM, give_up)
    suite = unittest.TestSuite()
    # Those that fail leave processes for a while that have the port of the next: they come last.
    for test in sorted(load(folder, device), key=lambda test: expected(test.id(), lines) == "fails"):
        if words and not any(word in test.id() for word in words):
            continue
        if expected(test.id(), lines) == "not-run":
            not_run += 1
        else:
            suite.addTest(test)
    ends = unittest.TextTestRunner(resultclass=Ends, verbosity=2).run(suite).ends
    for name, end in ends.items():
        if end != expected(name, lines):
            failed += 1
            print(f"pyverbs: {name}: {end}, expected: {expected(name, lines)}")
    count = [list(ends.values()).count(end) for end in ("ok", "skips", "fails")]
    print(f"pyverbs: {device}: {count[0]} succeed, {count[1]} skip themselves, {count[2]} fail, "
          f"{not_run} not run; {failed} not as expected")
    return failed or (0 if count[0] else 1)


def fetch(folder):
    """Unpacks the package, and its tests, which are compressed. Returns what is wrong, or None."""
    got = subprocess.run(["apt-get", "-qq", "download", PACKAGE], cwd=folder, capture_output=True,
                         text=True)
    packages = list(folder.glob("*.deb"))
    if not packages:
        return f"missing {PACKAGE}: {got.stderr}"
    subprocess.run(["dpkg", "-x", packages[0], folder], check=True)
    (folder / "tests").mkdir()
    for file in (folder / "usr/share/doc/rdma-core/tests").iterdir():
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        (folder / "tests" / file.name.removesuffix(".gz")).write_bytes(text)
    return None


def run_device(device, rddp, folder, words):
    """Runs the tests on a device. Returns whether all have ended as expected."""
    environment = dict(os.environ, PYTHONPATH=str(folder / "usr/lib/python3/dist-packages"))
    log = open(folder / "log", "w+")
    command = [rddp, "run", *DEVICES[device][0], "--", sys.executable, __file__, "--inside", device,
               folder, *words]
    inside = subprocess.Popen(command, env=environment, stderr=log, cwd=folder, start_new_session=True)
    try:
        status = inside.wait(SECONDS)
    except subprocess.TimeoutExpired:
        status = f"not done after {SECONDS} s"
    finally:
        if inside.poll() is None:
            os.killpg(inside.pid, signal.SIGKILL)
    if status:
        log.seek(0)
        print(log.read())
        print(f"pyverbs: {device}: {status}")
    return not status


def main():
    if sys.argv[1] == "--inside":
        return 1 if run_inside(sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:]) else 0
    rddp = pathlib.Path(sys.argv[1]).resolve().with_name("rddp")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fault = fetch(folder)
        if fault:
            print(f"pyverbs: NOT CHECKED: {fault}")
            return 2
        words = [word for word in sys.argv[2:] if word not in DEVICES]
        devices = [word for word in sys.argv[2:] if word in DEVICES] or DEVICES
        right = [run_device(device, rddp, folder, words) for device in devices]
        return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The test suites: sources of their tests, how to run them, and how to read each case's result."""

import pathlib
import re
import shutil
import subprocess
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
# Debian's packages are for its own Python, whatever else is installed.
PACKAGES = "/usr/lib/python3/dist-packages"


class CannotRun(Exception):
    """The error that a suite's requirement is not installed, or does not build."""


class NoSources(Exception):
    """The error that Debian's archive did not give a source package."""


class Part:
    """A unit that runs at once: a command whose output has a result for each case."""

    def __init__(self, suite, name, command, *, limit, stall=None, before=(), environment=None, files=()):
        self.suite, self.name, self.command = suite, name, command
        self.limit, self.stall = limit, stall or limit
        self.before, self.environment, self.files = before, environment or {}, files

    def lay_out(self, folder):
        """Copies the files that the tests expect in their folder."""
        for file in self.files:
            copy = shutil.copytree if file.is_dir() else shutil.copy2
            copy(file, folder / file.name, **({"symlinks": True} if file.is_dir() else {}))
        if self.before:
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)

    def progress(self, folder):
        return folder / "output"

    def ended(self, folder, how):
        """Runs when the command has ended by itself (a "crash", if it was not through) or has been
        ended (a "hang"); returns whether that was all."""
        return True

    def results(self, folder):
        found = {}
        for line in (folder / "output").read_text(errors="replace").splitlines():
            case = self.read(line)
            if case:
                name, result = case
                while name in found:
                    name += "'"
                found[name] = result
        return found


class PythonPart(Part):
    """Modules of tests in Python, run by cases.py: after a hang or a crash the rest is run."""

    def __init__(self, suite, name, prefix, modules, how="unittest", **more):
        self.prefix = prefix + "."
        super().__init__(suite, name, [PYTHON, "../cases.py", how, "../results", *modules], **more)

    def lay_out(self, folder):
        super().lay_out(folder)
        # The tree may stand in /tmp, which the tests have as their own.
        shutil.copy2(HERE / "cases.py", folder.parent)

    def progress(self, folder):
        return folder / "results"

    def ended(self, folder, how):
        path = folder / "results"
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines or lines[-1] == "= end":
            return True
        begun = [line[2:] for line in lines if line.startswith("> ")]
        ended = [line.rpartition(": ")[0] for line in lines if not line.startswith("> ")]
        at = next((name for name in reversed(begun) if begun.count(name) > ended.count(name)), None)
        if at is None:
            # The process ended between two cases, so it is not known which case to leave out.
            return True
        with open(path, "a") as file:
            file.write(f"{at}: {how}\n")
        return False

    def results(self, folder):
        path = folder / "results"
        found = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            if not line.startswith(("> ", "= ")):
                name, _, result = line.rpartition(": ")
                found.setdefault(name.removeprefix(self.prefix), result)
        return found


class LibuvPart(Part):
    def read(self, line):
        match = re.match(r"(not )?ok \d+ - (\w+)( # SKIP)?", line)
        return match and (match[2], "fail" if match[1] else "skip" if match[3] else "pass")


class RedisPart(Part):
    RESULTS = {"ok": "pass", "err": "fail", "skip": "skip", "ignore": "skip", "exception": "fail", "timeout": "hang"}
    # Units that draw the servers and the number of their tests: equal words, whatever the numbers
    # in them, are one case, which passes if all of them do.
    DRAWN = ["integration/psync2", "integration/psync2-reg"]

    def results(self, folder):
        if self.name not in self.DRAWN:
            return super().results(folder)
        found = {}
        for name, result in filter(None, map(self.read, (folder / "output").read_text(errors="replace").splitlines())):
            name = re.sub(r"\b\d+", "N", name)
            found[name] = result if found.get(name, "pass") == "pass" else found[name]
        return found

    def read(self, line):
        line = re.sub(r"\x1b\[[\d;]*m", "", line)
        match = re.match(r"\[(ok|err|skip|ignore|exception|timeout)\]: (.*)", line)
        if not match:
            return None
        name = re.sub(r" \(\d+ ms\)$| in tests/\S+\.tcl$", "", match[2])
        return re.sub(r"\b\d{4,}\b", "N", name), self.RESULTS[match[1]]


def needs(*paths):
    for path, package in paths:
        if not pathlib.Path(path).exists():
            raise CannotRun(f"no {path}: apt-get install {package}")


def debian_source(built, package):
    """Unpacks Debian's source package and returns its folder; apt's own lists stay as they are."""
    folder = built / package
    if folder.exists():
        return folder
    for below in ["lists/partial", "cache/archives/partial"]:
        (built / below).mkdir(parents=True, exist_ok=True)
    (built / "sources.list").write_text("".join(
        f"deb-src http://deb.debian.org/{archive} main\n" for archive in ["debian bookworm", "debian-security bookworm-security"]))
    apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={built}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
           "-o", f"Dir::State::lists={built}/lists", "-o", f"Dir::Cache={built}/cache", "-o", "APT::Sandbox::User=root"]
    try:
        for command in [[*apt, "update"], [*apt, "source", "--download-only", package]]:
            run(command, built)
    except CannotRun as reason:
        raise NoSources(reason) from None
    description = next(built.glob(f"{package}_*.dsc"))
    run(["dpkg-source", "-x", str(description), str(folder)], built)
    return folder


def run(command, folder):
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise CannotRun(reason) from None
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(command)}: {done.stdout[-500:].strip()}")


CPYTHON = """test_socket test_selectors test_select test_poll test_epoll test_asyncio test_asyncore test_asynchat test_ssl test_httplib
    test_httpservers test_urllib2_localnet test_xmlrpc test_wsgiref test_ftplib test_smtplib test_smtpd test_telnetlib test_poplib
    test_imaplib test_nntplib test_socketserver test_subprocess test_signal test_logging""".split()

# Those that open sockets, of many that do not.
ASYNCIO = """test_base_events test_buffered_proto test_events test_selector_events test_sendfile test_server test_sock_lowlevel
    test_ssl test_sslproto test_streams test_subprocess test_transports test_unix_events""".split()


def cpython(built):
    needs(("/usr/lib/python3.11/test/test_socket.py", "libpython3.11-testsuite"))
    # VSOCK, which is not TCP, hangs in some virtual machines.
    leave_out = {"LEAVE_OUT": "ThreadedVSOCKSocketStreamTest"}
    asyncio = [f"test.test_asyncio.{name}" for name in ASYNCIO]
    return [PythonPart("cpython", name, f"test.{name}", asyncio if name == "test_asyncio" else [f"test.{name}"],
                       limit=900, stall=20, environment=leave_out)
            for name in CPYTHON]


def tornado(built):
    needs((f"{PACKAGES}/tornado/test", "python3-tornado"))
    names = sorted(path.stem for path in pathlib.Path(f"{PACKAGES}/tornado/test").glob("*_test.py"))
    return [PythonPart("tornado", name, f"tornado.test.{name}", [f"tornado.test.{name}"], limit=600, stall=60, environment={"ASYNC_TEST_TIMEOUT": "15"})
            for name in names]


TWISTED = """twisted.internet.test twisted.protocols.test twisted.test.test_tcp twisted.test.test_internet twisted.test.test_ssl
    twisted.test.test_ftp twisted.test.test_protocols twisted.test.test_policies twisted.test.test_amp
    twisted.test.test_loopback twisted.test.test_process twisted.test.test_stdio twisted.web.test.test_webclient
    twisted.web.test.test_http twisted.web.test.test_xmlrpc twisted.web.test.test_wsgi twisted.spread.test.test_pb
    twisted.mail.test.test_smtp twisted.mail.test.test_imap twisted.names.test.test_server""".split()


def twisted(built):
    needs((f"{PACKAGES}/twisted/internet/test", "python3-twisted"))
    # Reactors of GLib and GTK are there on some machines only. TLSMemoryBIOTests use no sockets,
    # and hang bare.
    leave_out = {"LEAVE_OUT": "TLSMemoryBIOTests|GIReactor|Glib2Reactor|GtkReactor|Gtk2Reactor|Gtk3Reactor"}
    return [PythonPart("twisted", name.removeprefix("twisted."), name, [name], "trial", limit=900, stall=30, environment=leave_out)
            for name in TWISTED]


GEVENT = """backdoor core_fork fileobject greenio greenness hub_join iwait makefile_ref monkey_select
    monkey_selectors os pywsgi refcount select selectors server server_pywsgi signal socket socket_close
    socket_errors socket_ex socket_send_memoryview socket_timeout socketpair ssl subprocess timeout""".split()


def gevent(built):
    """Debian's gevent, with the tests of the wheel of its version: Debian's packages have none."""
    needs((f"{PACKAGES}/gevent", "python3-gevent"), (f"{PACKAGES}/pip", "python3-pip"))
    folder = built / "gevent"
    if not folder.exists():
        version = next(pathlib.Path(PACKAGES).glob("gevent-*.egg-info")).stem.partition("-")[2]
        try:
            run([PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", f"gevent=={version}"], built)
        except CannotRun as reason:
            raise NoSources(reason) from None
        with zipfile.ZipFile(next(built.glob("gevent-*.whl"))) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(("gevent/tests/", "gevent/testing/"))])
        shutil.copytree(f"{PACKAGES}/gevent", folder / "gevent", dirs_exist_ok=True)
    return [PythonPart("gevent", name, f"gevent.tests.test__{name}", [f"gevent.tests.test__{name}"], limit=600, stall=60,
                       environment={"PYTHONPATH": "/mnt/cwd"}, files=[folder / "gevent"])
            for name in GEVENT]


def libuv(built):
    folder = debian_source(built, "libuv1")
    if not (folder / "uv_run_tests").exists():
        run(["bash", str(HERE / "build-libuv")], folder)
    # Its runner refuses root. With a route to nowhere, connections that nobody answers are tested.
    before = ["bash", "-c", 'ip route add default dev lo; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"', "-"]
    return [LibuvPart("libuv", "uv", ["./uv_run_tests"], limit=600, before=before, files=[folder / "uv_run_tests", folder / "test"],
                      environment={"UV_TEST_TIMEOUT_MULTIPLIER": "2", "RES_OPTIONS": "attempts:0"})]


REDIS = """unit/auth unit/protocol unit/quit unit/other unit/multi unit/acl unit/info unit/introspection unit/introspection-2
    unit/limits unit/networking unit/obuf-limits unit/querybuf unit/pendingquerybuf unit/replybufsize unit/maxmemory
    unit/client-eviction unit/pubsub unit/pubsubshard unit/tracking unit/wait unit/pause unit/shutdown unit/scripting unit/functions
    unit/slowlog unit/cluster unit/cluster/misc unit/cluster/links unit/type/list integration/block-repl integration/replication
    integration/replication-2 integration/replication-3 integration/replication-4 integration/replication-psync
    integration/replication-buffer integration/psync2 integration/psync2-reg integration/psync2-pingoff
    integration/psync2-master-restart integration/failover integration/shutdown integration/redis-cli integration/redis-benchmark
    integration/logging integration/aof""".split()


def redis(built):
    needs(("/usr/bin/redis-server", "redis-server"), ("/usr/bin/redis-benchmark", "redis-tools"), ("/usr/bin/tclsh", "tcl"))
    folder = debian_source(built, "redis")
    for name in ["redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"]:
        if not (folder / "src" / name).is_symlink():
            (folder / "src" / name).symlink_to(f"/usr/bin/{name}")
    return [RedisPart("redis", unit, ["/usr/bin/tclsh", "tests/test_helper.tcl", "--single", unit, "--durable", "--timeout", "240"],
                      limit=1200, files=[folder / "tests", folder / "src"])
            for unit in REDIS]


SUITES = {"cpython": cpython, "libuv": libuv, "tornado": tornado, "twisted": twisted, "gevent": gevent, "redis": redis}

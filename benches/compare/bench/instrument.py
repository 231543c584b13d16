"""The pair of rddp-compare processes: connections that stay open, slices of traffic on demand."""

import contextlib
import json
import os
import select
import subprocess
import tempfile

from .flow import Flow

# Time limit for one answer, beyond the slice itself.
PATIENCE = 60


class Fault(Exception):
    """A failure or hang of the processes under measurement; the text says how to reproduce it."""


class Instrument:
    """Two processes; `server_in` and `client_in` are words to put before their commands (a
    namespace, a processor)."""

    def __init__(self, binary, address="127.0.0.1", server_in=(), client_in=()):
        self.asked = []
        # The output of both when they stop.
        self.words = tempfile.TemporaryFile(mode="w+")
        self.server = subprocess.Popen([*server_in, binary, "server", address], stdout=subprocess.PIPE, stderr=self.words,
                                       text=True)
        port = self._line(self.server, PATIENCE).strip()
        self.client = subprocess.Popen([*client_in, binary, "client", f"{address}:{port}"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=self.words, text=True, bufsize=1)

    def ask(self, command, patience=PATIENCE):
        line = json.dumps(command)
        self.asked.append(line)
        try:
            self.client.stdin.write(line + "\n")
            self.client.stdin.flush()
        except BrokenPipeError:
            pass
        return json.loads(self._line(self.client, patience))

    def _line(self, process, patience):
        ready, _, _ = select.select([process.stdout], [], [], patience)
        line = process.stdout.readline() if ready else ""
        if line:
            return line
        what = "no answer" if not ready else "an end has stopped"
        self.words.seek(0)
        said = "; ".join(self.words.read().split("\n")[:4])
        raise Fault(f"{what}: {said} (the client's commands were: {' '.join(self.asked)})")

    def open(self, **spec):
        """Opens a lane; see Spec in src/spec.rs."""
        return Lane(self, spec, self.ask({"open": spec}))

    def usage(self):
        return self.ask({"usage": {}})

    def threads(self):
        """Returns the number of threads of the active end, at present."""
        return len(os.listdir(f"/proc/{self.client.pid}/task"))

    def finish(self):
        """Lets both end by themselves."""
        self.client.stdin.close()
        for process in (self.client, self.server):
            process.wait(PATIENCE)

    def close(self):
        for process in (self.client, self.server):
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self.words.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Lane:
    """Connections of one kind. Each method is one slice."""

    def __init__(self, instrument, spec, opened):
        self.instrument, self.spec, self.opened = instrument, spec, opened

    def slice(self, kind, ms):
        return self.instrument.ask({"slice": {"lane": self.opened["lane"], "kind": kind, "ms": ms}})

    def bandwidth(self, ms):
        """Returns octets a second."""
        return self.flow(ms).rate

    def flow(self, ms):
        """Returns bandwidth, and what it cost."""
        return Flow.of(self.slice("bandwidth", ms), self.spec["op"])

    def rate(self, ms):
        """Returns messages a second."""
        report = self.slice("bandwidth", ms)
        return report["messages"] / report["seconds"]

    def latency(self, ms, which="p50"):
        """Returns seconds one way, of ping-pong."""
        return self.times(ms)[which]

    def times(self, ms, kind="latency", end="active"):
        """Returns quantiles of the times of single messages, in seconds. Kinds: `latency`, one way;
        `watch`, the same between processes that look at memory and poll for their own Writes, or
        `silent`, never; `request`, all of a connection that carries one message each way."""
        nanoseconds = self.slice(kind, ms)[end]["latency_ns"]
        return {name: value / 1e9 for name, value in nanoseconds.items()}

    def window(self, ms):
        """Returns octets a second in the median window."""
        seconds = self.slice("window", ms)["active"]["latency_ns"]["p50"] / 1e9
        return self.spec["depth"] * self.spec["size"] / seconds

    def notice(self, ms):
        """Returns times one way, to a process that waits for nothing else."""
        return self.times(ms, "notice", "passive")

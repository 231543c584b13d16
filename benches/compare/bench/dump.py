"""Writes the packets that arrive in a namespace to a file, by dumpcap."""

import signal
import subprocess
import time

from .namespaces import DEVICE, inside
from .result import CannotMeasure

# Packets that may wait to be written before some are dropped.
BUFFER_MIB = 256


class Dump:
    def __init__(self, namespace, path):
        words = ["dumpcap", "-q", "-P", "-i", DEVICE, "-B", str(BUFFER_MIB), "-f", "tcp", "-w", str(path)]
        self.process = subprocess.Popen([*inside(namespace), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.path = path

    def __enter__(self):
        for _ in range(500):
            if self.path.exists() and self.path.stat().st_size >= 24:
                return self
            time.sleep(0.01)
        self.process.kill()
        raise CannotMeasure(f"dumpcap does not start: {self.process.communicate()[1].decode()}")

    def __exit__(self, *_):
        # Packets that have arrived are written before dumpcap ends.
        time.sleep(0.3)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

"""Two network namespaces joined by a veth pair."""

import contextlib
import os
import subprocess

from . import network
from .result import CannotMeasure

MTU = 1500
ADDRESSES = ("10.98.76.1", "10.98.76.2")
DEVICE = "veth0"


def names():
    return tuple(f"rddp-compare-{os.getpid()}-{side}" for side in ("a", "b"))


def ip(*words):
    done = subprocess.run(["ip", *words], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CannotMeasure(f"network namespaces cannot be made here: ip {' '.join(words)}: {done.stderr.strip()}")


def inside(namespace):
    """Returns the words before a command that is to run in this namespace."""
    return ("ip", "netns", "exec", namespace)


@contextlib.contextmanager
def veth(mtu=MTU):
    """Returns the namespaces of the passive and of the active end."""
    passive, active = pair = names()
    made = []
    try:
        for namespace in pair:
            ip("netns", "add", namespace)
            made.append(namespace)
            network.copy_to(namespace)
        ip("-n", passive, "link", "add", DEVICE, "mtu", str(mtu), "type", "veth", "peer", "name", DEVICE, "netns", active,
           "mtu", str(mtu))
        for namespace, address in zip(pair, ADDRESSES):
            ip("-n", namespace, "addr", "add", f"{address}/24", "dev", DEVICE)
            ip("-n", namespace, "link", "set", DEVICE, "up")
        yield pair
    finally:
        for namespace in made:
            subprocess.run(["ip", "netns", "del", namespace], check=False)


def without_offload(namespace):
    """Turns offloading off, so that the device carries segments as they would be on a wire."""
    words = [*inside(namespace), "ethtool", "-K", DEVICE, "tso", "off", "gso", "off", "gro", "off"]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CannotMeasure(f"{' '.join(words)}: {done.stderr.strip()}")

"""A network namespace for a row, whose sockets have one congestion control, whatever the host's."""

import contextlib
import ctypes
import os
import subprocess
from pathlib import Path

from .result import CannotMeasure
from .setup import is_root

CLONE_NEWNET = 0x40000000
SYSCTL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
# By preference: what Linux has by default, and what each kernel has.
USUAL = ("cubic", "reno")


def allowed():
    """Returns those that a namespace may have: what only root may choose is not among them."""
    return SYSCTL.with_name("tcp_allowed_congestion_control").read_text().split()


def usual():
    """Returns the congestion control of all rows that name none."""
    if not is_root():
        return SYSCTL.read_text().strip()
    return next(name for name in USUAL if name in allowed())


@contextlib.contextmanager
def under(congestion):
    """This process and those it starts are in a network of nothing but loopback, and with this
    congestion control; without root in the host's, if that has it."""
    if congestion not in allowed():
        raise CannotMeasure(f"{congestion} is not in this host's net.ipv4.tcp_allowed_congestion_control")
    if not is_root():
        if congestion != SYSCTL.read_text().strip():
            raise CannotMeasure(f"needs root for {congestion}")
        yield
        return
    host = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        call("unshare", CLONE_NEWNET)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        SYSCTL.write_text(congestion)
        yield
    finally:
        call("setns", host, CLONE_NEWNET)
        os.close(host)


def call(name, *arguments):
    """Calls a function of the C library: Python has these two from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise CannotMeasure(f"{name}: {os.strerror(ctypes.get_errno())}")


def copy_to(namespace):
    """Gives a namespace that was made by name the congestion control of this one."""
    subprocess.run(["ip", "netns", "exec", namespace, "tee", SYSCTL], input=SYSCTL.read_text(), text=True,
                   stdout=subprocess.DEVNULL, check=True)

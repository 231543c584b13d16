"""Describes the machine of the measurement."""

import datetime
import os
import platform
import subprocess


def describe(root):
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "virtual": _first(["systemd-detect-virt"]) or ("yes" if "hypervisor" in _cpuinfo("flags").split() else "no"),
        "rust": _first(["rustc", "--version"]),
        "commit": _first(["git", "-C", str(root), "describe", "--always", "--dirty"]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": os.getloadavg()[0],
    }


def _cpuinfo(name):
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _processor():
    return _cpuinfo("model name") or platform.machine()


def _first(words):
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""

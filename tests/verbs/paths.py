#!/usr/bin/env python3
"""Shows the files of devices that look like RoCE to unmodified programs: Debian's ibstat and
ibstatus, ls and Python, by librddp_paths.so (`rddp run --roce`) and by a mount (`rddp roce tree`).

    paths.py LIBRARY

The rddp beside the library is used. The mount is an ordinary user's, in namespaces of its own.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

DEVICES = "mlx5_0=127.0.0.1,mlx5_1=::1"
GID = "0000:0000:0000:0000:0000:ffff:7f00:0001"
STATUS = f"""Infiniband device 'mlx5_0' port 1 status:
\tdefault gid:\t {GID}
\tbase lid:\t 0x0
\tsm lid:\t\t 0x0
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 40 Gb/sec (4X QDR)
\tlink_layer:\t Ethernet
"""
# A script of Python, and what it is to print.
SEEN = (
    ("sorted(os.listdir('/sys/class/infiniband'))", "['mlx5_0', 'mlx5_1']"),
    ("[e.name for e in os.scandir('/sys/class/infiniband_verbs') if e.name == 'uverbs1']", "['uverbs1']"),
    ("open('/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3').read()", "'RoCE v2\\n'"),
    ("[ctypes.CDLL(None).realpath(b'/sys/class//infiniband/mlx5_0',"
     " b := ctypes.create_string_buffer(4096)),"
     " b.value][1]", "b'/sys/class/infiniband/mlx5_0'"),
    ("[ctypes.CDLL(None).realpath(b'/sys/class/infiniband/mlx5_0/../..',"
     " b := ctypes.create_string_buffer(4096)),"
     " b.value][1]", "b'/sys/devices/virtual'"),
    ("stat.S_ISCHR(os.stat('/dev/infiniband/uverbs0').st_mode)", "True"),
    ("os.access('/dev/infiniband/uverbs1', os.R_OK | os.W_OK)", "True"),
    ("os.readlink('/dev/infiniband/uverbs1')", "'/dev/null'"),
    ("os.path.exists('/sys/class/infiniband/mlx5_2')", "False"),
    ("os.path.exists('/sys/class/net/lo')", "True"),
)
# As an ordinary user: nobody.
USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
NAMESPACES = [*USER, "unshare", "-Ur", "--mount"]


def said(*command):
    """Returns the output of a program, also of one that fails."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr


def lacks(text, *wanted):
    """Yields what is not in a text."""
    for part in wanted:
        if part not in text:
            yield f"does not say {part!r}:\n{text}"


def redirected(rddp):
    """Yields what is wrong with the devices as programs see them under `rddp run --roce`."""
    run = [rddp, "run", "--roce", DEVICES, "--"]
    ibstat = said(*run, "ibstat")
    yield from lacks(ibstat, "CA 'mlx5_0'", "CA 'mlx5_1'", "State: Active", "Link layer: Ethernet")
    guid = said(*run, "ibv_devinfo", "-d", "mlx5_0").split("node_guid:")[-1].split()[0]
    yield from lacks(ibstat, f"Node GUID: 0x{guid.replace(':', '')}")
    yield from lacks(said(*run, "ibstatus"), STATUS, "'mlx5_1' port 1")
    listed = said(*run, "ls", "-l", "/sys/class/infiniband", "/dev/infiniband")
    yield from lacks(listed, "mlx5_1", "uverbs1 -> /dev/null")
    if "No such file" in listed:
        yield f"ls does not find all that it asks for:\n{listed}"
    for script, wanted in SEEN:
        printed = said(*run, sys.executable, "-c", f"import ctypes, os, stat; print(repr({script}))").strip()
        if printed != wanted:
            yield f"{script}: {printed}, not {wanted}"


def mounted(rddp):
    """Yields what is wrong with the devices as an ordinary user sees them who mounts the tree."""
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name) / "tree"
        yield from lacks(said(rddp, "roce", "tree", tree, "--roce", DEVICES), "mlx5_0: on lo")
        yield from lacks(said(rddp, "roce", "tree", tree), "not empty", "try: ")
        pathlib.Path(name).chmod(0o755)
        # A static program calls the kernel itself, as one of Go does.
        static = "busybox cat /sys/class/infiniband_verbs/uverbs1/ibdev"
        mount = f"mount --rbind {tree}/sys/class /sys/class && ibstat && ibstatus && {static}"
        text = said(*NAMESPACES, "sh", "-c", mount)
        yield from lacks(text, "CA 'mlx5_1'", "Link layer: Ethernet", STATUS, "\nmlx5_1\n")


def main():
    rddp = pathlib.Path(sys.argv[1]).resolve().with_name("rddp")
    missing = [name for name in ("ibstat", "ibstatus", "ibv_devinfo", "busybox") if not shutil.which(name)]
    faults = [f"there is no {name}" for name in missing] or [*redirected(rddp)]
    if not missing and subprocess.run([*NAMESPACES, "true"], check=False).returncode:
        print("paths: not tried: this host gives ordinary users no namespaces")
    elif not missing:
        faults += mounted(rddp)
    for fault in faults:
        print(f"paths: {fault}")
    print(f"paths: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Prerequisites: Debian packages, and programs built in release."""

import os
import subprocess
import sys
from pathlib import Path

from .result import CannotMeasure


def is_root():
    return os.geteuid() == 0


def is_installed(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return "install ok installed" in done.stdout


def install(packages):
    missing = [package for package in packages if not is_installed(package)]
    if not missing:
        return
    if not is_root():
        raise CannotMeasure(f"needs root to install {' '.join(missing)} (or install them first)")
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    words = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*words, "update"], env=environment, stdout=sys.stderr, check=False)
    done = subprocess.run([*words, "install", "-y", "--no-install-recommends", *missing], env=environment,
                          stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise CannotMeasure(f"{' '.join(missing)} cannot be installed from Debian's packages here")


def build(root):
    """Builds our ends, the command and both libraries in release, and returns the folder of the
    build's output."""
    packages = ["-p", "rddp-compare", "-p", "rddp-preload", "-p", "rddp-cli", "-p", "rddp-verbs-abi"]
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", *packages], cwd=root, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))


def build_peer(plan, name, *options):
    """Builds one of the programs in peers/, if it has changed."""
    folder, binary = plan.root / "benches/compare/peers", plan.target / name
    changed = max(source.stat().st_mtime for source in folder.iterdir())
    if not binary.exists() or binary.stat().st_mtime < changed:
        subprocess.run(["gcc", "-O2", "-Wall", "-o", binary, folder / f"{name}.c", *options], check=True)

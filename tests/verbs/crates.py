#!/usr/bin/env python3
"""Builds the Rust crates sideway and rdma-sys of crates.io with their examples and tests, and runs
them on librddp_verbs.so: those that connect by librdmacm, or not at all.

    crates.py LIBRARY [FOLDER]

They are built in FOLDER, which stays, or in a folder that goes again. Needs crates.io, cmake,
libclang, libibverbs-dev and librdmacm-dev; takes some minutes. Ends with 2 where a crate could not
be built.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from programs import AT, Case, run

# Versions, and the tests that need no connection by numbers.
CRATES = {"sideway": ("0.4.3", ["test_cq", "test_mr_and_cq"]), "rdma-sys": ("0.3.0", [])}


def sources(folder):
    """Has cargo fetch the crates. Returns their folders by their names."""
    project = folder / "fetched"
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src/lib.rs").touch()
    wanted = "\n".join(f'{name} = "={version}"' for name, (version, _) in CRATES.items())
    (project / "Cargo.toml").write_text(
        f'[package]\nname = "fetched"\nversion = "0.0.0"\n[dependencies]\n{wanted}\n[workspace]\n')
    said = subprocess.run(["cargo", "metadata", "--format-version", "1"], cwd=project,
                          stdout=subprocess.PIPE, text=True)
    packages = json.loads(said.stdout)["packages"] if said.returncode == 0 else []
    return {package["name"]: pathlib.Path(package["manifest_path"]).parent for package in packages}


def build(source, place, tests):
    """Builds the examples and these tests in a copy of the source. Returns their programs by name,
    or None."""
    if not place.exists():
        shutil.copytree(source, place)
        with open(place / "Cargo.toml", "a") as manifest:
            manifest.write("\n[workspace]\n")
    programs = {}
    for command in (["build", "--examples"], ["test", "--no-run", *(f"--test={test}" for test in tests)]):
        if command[0] == "test" and not tests:
            continue
        built = subprocess.run(["cargo", *command, "--quiet", "--message-format", "json"], cwd=place,
                               env=os.environ | {"CARGO_TARGET_DIR": str(place / "target")},
                               stdout=subprocess.PIPE, text=True)
        if built.returncode:
            return None
        messages = map(json.loads, built.stdout.splitlines())
        programs |= {message["target"]["name"]: message["executable"]
                     for message in messages if message.get("executable")}
    return programs


def cases(name, programs):
    if name == "rdma-sys":
        yield Case("rdma-sys", programs["server"], f"{programs['client']} {AT} 7471")
        return
    for test in CRATES[name][1]:
        yield Case(f"sideway {test}", programs[test], says="test result: ok")
    yield Case("sideway ibv_devinfo", programs["ibv_devinfo"], says="rddp0")
    yield Case("sideway show_gids", programs["show_gids"], says="rddp0")
    yield Case("sideway cmtime", f"{programs['cmtime']} -c 20", f"{programs['cmtime']} -c 20 -s {AT}")


def play(rddp, folder):
    failed = missing = 0
    found = sources(folder)
    for name, (_, tests) in CRATES.items():
        programs = build(found[name], folder / name, tests) if name in found else None
        if programs is None:
            missing += 1
            print(f"crates: NOT BUILT: {name}")
            continue
        for case in cases(name, programs):
            fault = run(case, rddp, folder)
            if fault:
                failed += 1
                print(f"crates: {case.name}: {fault}")
    print(f"crates: {failed} failed, {missing} could not be built")
    return 1 if failed else 2 if missing else 0


def main():
    rddp = pathlib.Path(sys.argv[1]).resolve().with_name("rddp")
    if sys.argv[2:]:
        return play(rddp, pathlib.Path(sys.argv[2]).resolve())
    with tempfile.TemporaryDirectory() as name:
        return play(rddp, pathlib.Path(name))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compiles extensions.c with the headers of libibverbs-dev and runs it on librddp_verbs.so: with
the extensions of RFC 7306 on by a variable, on by a policy, off, and off by a policy for this
peer. Then settings that make no sense: they are told once, and no device opens."""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).with_name("extensions.c")
TRIES = [
    ("on", {"RDDP_VERBS_EXTENSIONS": "1"}, ""),
    ("on", {}, "verbs extensions 127.0.0.0/8:* extensions = on"),
    ("off", {}, ""),
    ("off", {}, "verbs other *:* extensions=on\nverbs * 192.0.2.0/24:* crc=off"),
    # The peers' own settings may be any: the extensions need none of the others.
    ("on", {"RDDP_VERBS_EXTENSIONS": "on", "RDDP_VERBS_CRC": "0", "RDDP_VERBS_MARKERS": "1",
            "RDDP_VERBS_MPA": "1"}, ""),
]


def main():
    library = pathlib.Path(sys.argv[1]).resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for link in ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so",
                     library.name):
            (folder / link).symlink_to(library)
        program, policy = folder / "extensions", folder / "policy"
        command = [os.environ.get("CC", "cc"), "-Wall", "-g", "-o", program, SOURCE,
                   f"-L{folder}", "-lrdmacm", "-libverbs", "-lpthread"]
        if subprocess.run(command).returncode:
            print("extensions: no compiler, or no headers: install libibverbs-dev and librdmacm-dev")
            return 1

        def run(word, variables, text):
            policy.write_text(text + "\n")
            environment = dict(os.environ, LD_LIBRARY_PATH=str(folder), RDDP_POLICY=str(policy),
                               **variables)
            return subprocess.run([program, word], env=environment, timeout=60,
                                  capture_output=True, text=True)

        for word, variables, text in TRIES:
            ended = run(word, variables, text)
            if ended.returncode or ended.stderr:
                failed += 1
                print(f"extensions: {word} {variables} {text!r}: {ended.stdout}{ended.stderr}")
        for variables, text, remedy in [
                ({"RDDP_VERBS_CRC": "maybe"}, "", "RDDP_VERBS_CRC=maybe: not a value"),
                ({}, "verbs * *:* ird=1000", "line 1: \"1000\" is no value of ird")]:
            ended = run("on", variables, text)
            if not ended.returncode or ended.stderr.count(remedy) != 1 or "try: " not in ended.stderr:
                failed += 1
                print(f"extensions: {variables} {text!r} is taken: {ended.stdout}{ended.stderr}")
    print(f"extensions: {f'{failed} failed' if failed else 'used where both ends have the setting'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

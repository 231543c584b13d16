#!/usr/bin/env python3
"""Compiles extensions.c with the headers of libibverbs-dev and runs it on librddp_verbs.so: with
the extensions of RFC 7306 on by a variable, on by a policy, off, and off by a policy for this
peer. Then settings that make no sense: they are told once, and no device opens."""

import pathlib
import subprocess
import sys
import tempfile

from c_program import build

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
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        policy, built = folder / "policy", build(sys.argv[1], folder, "extensions")
        if not built:
            return 1
        program, plain = built

        def run(word, variables, text):
            policy.write_text(text + "\n")
            return subprocess.run([program, word], timeout=60,
                                  env=plain | variables | {"RDDP_POLICY": str(policy)},
                                  capture_output=True, text=True)

        for word, variables, text in TRIES:
            ended = run(word, variables, text)
            lines = ended.stderr.count("\n")
            if ended.returncode or lines != (word == "off"):
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

"""Looks at the packages where they are installed: what each has, that binaries are stripped, that a
library lies under its SONAME, and that man pages, completions and units can be read."""

import glob
import gzip
import pathlib
import re
import shutil
import subprocess


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files(package):
    return [line for line in said("dpkg", "-L", package).splitlines() if pathlib.Path(line).is_file()]


binaries = [file for package in ("rddp", "librddp0") for file in files(package)
            if pathlib.Path(file).read_bytes()[:4] == b"\x7fELF" and not pathlib.Path(file).is_symlink()]
assert len(binaries) == 3, binaries
for binary in binaries:
    sections = said("readelf", "-SW", binary)
    assert ".debug_info" not in sections and ".symtab" not in sections, f"{binary} is not stripped"
    soname = re.search(r"\(SONAME\).*\[(.*)\]", said("readelf", "-d", binary))
    assert soname is None or soname[1] == pathlib.Path(binary).name, f"{binary} calls itself {soname[1]}"
    print(f"ok    {binary}: {pathlib.Path(binary).stat().st_size / 1e6:.1f} MB, stripped")

commands = re.findall(r"^  ([a-z]+) ", said("rddp", "--help").split("Commands:")[1].split("Options:")[0], re.M)
pages = {pathlib.Path(page).name for page in glob.glob("/usr/share/man/man1/rddp*.1.gz")}
missing = {f"rddp-{command}.1.gz" for command in commands if command != "help"} - pages
assert "rddp.1.gz" in pages and not missing, missing
assert b".SH NAME" in gzip.open("/usr/share/man/man1/rddp-serve.1.gz").read()
print(f"ok    {len(pages)} man pages")

ask = "source /usr/share/bash-completion/completions/rddp; COMP_WORDS=(rddp ser); COMP_CWORD=1; _rddp rddp ser rddp; echo ${COMPREPLY[@]}"
assert said("bash", "-c", ask).strip() == "serve"
print("ok    completions")

if shutil.which("systemd-analyze"):
    units = [file for file in files("rddp") if "/systemd/" in file]
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    assert found.returncode == 0 and "rddp" not in found.stderr, found.stderr
    print(f"ok    {len(units)} units")
else:
    print("not looked at: units (there is no systemd-analyze)")

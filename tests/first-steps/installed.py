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
assert len(binaries) == 4, binaries
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
    # The service as it is, and as its comment says that it gets a token.
    service = pathlib.Path(next(file for file in units if file.endswith(".service")))
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", service], capture_output=True, text=True)
    rating = re.search(r"exposure level .*: ([0-9.]+) (\w+)", rated.stdout)
    assert rating and rating[2] in ("OK", "SAFE", "PERFECT"), rated.stdout + rated.stderr
    lines = re.findall(r"^#   (\w+=.*)$", service.read_text(), re.M)
    assert [line.split("=")[0] for line in lines] == ["LoadCredential", "Environment"], lines
    edited = pathlib.Path(f"/etc/systemd/system/{service.name}.d/override.conf")
    edited.parent.mkdir(parents=True)
    edited.write_text("\n".join(["[Service]", *lines, ""]))
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", service], capture_output=True, text=True)
    assert found.returncode == 0 and "rddp" not in found.stderr, found.stderr
    print(f"ok    the service's exposure is {rating[1]}, {rating[2]}, and it takes a credential")
    # As an administrator does; all of it has to go with the packages.
    subprocess.run(["systemctl", "--quiet", "enable", "rddp-serve.socket"], check=True)
    assert pathlib.Path("/etc/systemd/system/sockets.target.wants/rddp-serve.socket").is_symlink()
    pathlib.Path("/var/lib/private/rddp").mkdir(parents=True)
    pathlib.Path("/var/lib/rddp").symlink_to("private/rddp")
else:
    print("not looked at: units (there is no systemd-analyze)")

if shutil.which("lintian"):
    # Who makes packages for others says who they are (DEBEMAIL).
    nobody = "bogus-mail-host,root-in-contact"
    packages = glob.glob("/first-steps/*.deb")
    said("lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", nobody, *packages)
    print(f"ok    {len(packages)} packages without errors of lintian's")
else:
    print("not looked at: packages, by lintian (it is not installed)")

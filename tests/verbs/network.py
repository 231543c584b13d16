"""Hosts in network namespaces of an ordinary user, joined by a bridge."""

import os
import subprocess
import sys
import time

# What such hosts share: a user, processes and mounts of its own, all gone when their first process
# ends.
AROUND = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork",
          "--kill-child", "--mount-proc"]
MARK = "RDDP_TESTS_AROUND"


def enter():
    """Runs the script again inside of `AROUND`, once. Returns whether it is inside."""
    if MARK in os.environ:
        return True
    if subprocess.run([*AROUND, "true"], stderr=subprocess.DEVNULL).returncode:
        return False
    os.environ[MARK] = "1"
    os.execvp(AROUND[0], [*AROUND, sys.executable, *sys.argv])


class Host:
    """A host with a name and an address, that of its default route."""

    def __init__(self, number):
        self.name, self.address = f"host{number}", f"10.98.0.{number}"
        inside = f"hostname {self.name} && echo && exec sleep infinity"
        self.keeper = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", inside],
                                       stdout=subprocess.PIPE)
        self.keeper.stdout.readline()
        port = f"port{number}"
        ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.keeper.pid))
        ip("link", "set", port, "master", "bridge", "up")
        for words in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"],
                      ["address", "add", f"{self.address}/24", "dev", "eth0"],
                      ["route", "add", "default", "dev", "eth0"]):
            subprocess.run(self.command("ip", *words), check=True)

    def command(self, *words):
        """Words that run a command on this host."""
        return ["nsenter", "--target", str(self.keeper.pid), "--net", "--uts", "--", *map(str, words)]

    def await_listener(self, port):
        """Waits until somebody on this host listens at a port."""
        wanted = f":{port:04X} 00000000:0000 0A"
        while wanted not in subprocess.check_output(self.command("cat", "/proc/net/tcp"), text=True):
            time.sleep(0.05)


def hosts(count, folder):
    """Makes hosts, once, that know each other by their names."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "bridge", "type", "bridge")
    ip("link", "set", "bridge", "up")
    made = [Host(number) for number in range(1, count + 1)]
    names = folder / "hosts"
    names.write_text("".join(f"{host.address} {host.name}\n" for host in made) + "127.0.0.1 localhost\n")
    subprocess.run(["mount", "--bind", names, "/etc/hosts"], check=True)
    return made


def agent(path, hosts):
    """Writes a program that is called as ssh is, and runs commands on the hosts."""
    cases = "".join(f"    {host.address}|{host.name}) keeper={host.keeper.pid} ;;\n" for host in hosts)
    path.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
{cases}    *) echo "no host $1" >&2; exit 255 ;;
esac
shift
exec nsenter --target "$keeper" --net --uts -- sh -c "$*"
""")
    path.chmod(0o755)


def ip(*words):
    subprocess.run(("ip", *words), check=True)

"""Two network namespaces with a path between them that loses packets and changes their order."""

import fcntl
import os
import random
import select
import struct
import subprocess
import threading

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x1, 0x1000
ADDRESSES = ("10.99.0.1", "10.99.0.2")
# Packets that overtake one that is held back.
OVERTAKEN_BY = 3


class Network:
    """A path for packets of `mtu` octets. Of each direction the share `drop` is lost, and the share
    `hold` delivered late; both are drawn from `seed`. Use as a context."""

    def __init__(self, mtu, drop, hold, seed):
        self.drop, self.hold = drop, hold
        self.random = random.Random(seed)
        self.passed = self.dropped = self.late = 0
        self.names = [f"rddp-loss-{os.getpid()}-{end}" for end in "ab"]
        self.tuns = [make_tun(number) for number in range(2)]
        self.over = os.pipe()
        for number, name in enumerate(self.names):
            device = device_name(number)
            ip("netns", "add", name)
            ip("link", "set", device, "netns", name)
            ip("-n", name, "link", "set", device, "mtu", str(mtu), "up")
            ip("-n", name, "address", "add", ADDRESSES[number], "peer", ADDRESSES[1 - number], "dev", device)
        self.relay = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.relay.start()
        return self

    def __exit__(self, *_):
        os.write(self.over[1], b".")
        self.relay.join()
        for name in self.names:
            ip("netns", "delete", name)
        for descriptor in (*self.tuns, *self.over):
            os.close(descriptor)

    def run(self):
        """Moves packets from each end to the other until told to stop."""
        # Packets that are held back, for each end that they came from: [packets that may still
        # overtake it, the packet].
        held = {tun: [] for tun in self.tuns}
        while True:
            # What nothing overtakes any more is delivered a little later.
            ready, _, _ = select.select([*self.tuns, self.over[0]], [], [], 0.02)
            if self.over[0] in ready:
                return
            for tun in ready:
                self.forward(tun, os.read(tun, 1 << 16), held[tun])
            if not ready:
                for tun, packets in held.items():
                    while packets:
                        self.deliver(tun, packets.pop(0)[1])

    def forward(self, tun, packet, held):
        drawn = self.random.random()
        if drawn < self.drop:
            self.dropped += 1
            return
        if drawn < self.drop + self.hold:
            self.late += 1
            held.append([OVERTAKEN_BY, packet])
            return
        self.deliver(tun, packet)
        for late in held:
            late[0] -= 1
        while held and held[0][0] <= 0:
            self.deliver(tun, held.pop(0)[1])

    def deliver(self, came_from, packet):
        self.passed += 1
        try:
            os.write(self.tuns[1 - self.tuns.index(came_from)], packet)
        except OSError:
            self.dropped += 1


def make_tun(number):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", device_name(number).encode(), IFF_TUN | IFF_NO_PI)
    fcntl.ioctl(descriptor, TUNSETIFF, request)
    return descriptor


def device_name(number):
    return f"rl{os.getpid() % 100000}{'ab'[number]}"


def ip(*words):
    subprocess.run(("ip", *words), check=True)

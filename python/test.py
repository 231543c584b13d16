#!/usr/bin/env python3
"""Tests the module: its numbers and structures against the headers, and two endpoints of one
process. `rddp run -- python3 python/test.py`; needs cc."""

import ctypes
import errno
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import unittest

import rddp

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "ext-sockets/include"
STRUCTURES = {"ddp_sge": rddp.Piece, "ddp_work": rddp.Work, "ddp_event": rddp.Event, "ddp_endpoint": rddp._Attach,
              "ddp_info": rddp.Info, "ddp_mode_info": rddp.ModeInfo, "ddp_placement_info": rddp.PlacementInfo}
# Fields with another name than in C.
NAMES = {"args": "with", "private_octets": "private_data"}


def in_c(*expressions):
    """Returns what the headers say of these, as numbers."""
    lines = "".join(f'printf("%lld\\n", (long long)({each}));' for each in expressions)
    program = f"#include <stdio.h>\n#include <stddef.h>\n#include <rddp/ddp.h>\nint main(void) {{ {lines} return 0; }}\n"
    with tempfile.TemporaryDirectory() as scratch:
        binary = f"{scratch}/numbers"
        subprocess.run(["cc", "-x", "c", "-", "-I", INCLUDE, "-o", binary], input=program, text=True, check=True)
        said = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in said.split()]


class AsTheHeadersSay(unittest.TestCase):
    def test_structures_have_the_sizes_and_fields_of_the_headers(self):
        for name, structure in STRUCTURES.items():
            fields = [field for field, _ in structure._fields_]
            there = in_c(f"sizeof(struct {name})",
                         *(f"offsetof(struct {name}, {NAMES.get(field, field)})" for field in fields))
            here = [ctypes.sizeof(structure), *(getattr(structure, field).offset for field in fields)]
            self.assertEqual(there, here, name)

    def test_numbers_are_those_of_the_headers(self):
        headers = "".join((INCLUDE / "rddp" / name).read_text() for name in ("ddp.h", "raw.h"))
        known = set(re.findall(r"\b(?:SOL_DDP|DDPMODE\w*|DDP_[A-Z0-9_]+)\b", headers))
        names = [name for name, value in vars(rddp).items() if name.isupper() and isinstance(value, int)]
        in_headers = [name if name in known else f"DDP_{name}" for name in names]
        self.assertEqual(set(in_headers) - known, set())
        self.assertEqual(dict(zip(names, in_c(*in_headers))), {name: getattr(rddp, name) for name in names})


class Connected(unittest.TestCase):
    """Two ends with a queue each: `near` has connected, `far` accepted."""

    def setUp(self):
        listener = rddp.raw_socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        sock = rddp.raw_socket()
        sock.setblocking(False)
        self.near = rddp.Endpoint(sock, rddp.Queue(), tag=1)
        self.assertEqual(sock.connect_ex(listener.getsockname()), errno.EINPROGRESS)
        self.far = rddp.Endpoint(listener.accept()[0], rddp.Queue(), tag=2)
        self.inbox = rddp.Memory(64, rddp.LOCAL_WRITE)
        self.far.receive(self.inbox)
        self.far.begin()
        for end in (self.near, self.far):
            end.queue.expect(rddp.CONNECTED)
        listener.close()

    def tearDown(self):
        for end in (self.near, self.far):
            end.sock.close()
            end.queue.close()

    def test_placement_is_at_user_level_where_no_interface_is_named(self):
        self.assertEqual(bytes(rddp.placement_info(self.far.sock)), bytes(ctypes.sizeof(rddp.PlacementInfo)))
        sock = rddp.raw_socket()
        self.assertEqual(sock.getsockopt(rddp.SOL_DDP, rddp.DDP_PLACEMENT), rddp.PLACEMENT_USER)
        for ask in (lambda: sock.setsockopt(rddp.SOL_DDP, rddp.DDP_PLACEMENT, rddp.PLACEMENT_AUTO),
                    lambda: rddp.Memory(64, rddp.LOCAL_WRITE | rddp.KERNEL)):
            with self.assertRaises(OSError) as refused:
                ask()
            self.assertEqual(refused.exception.errno, errno.EOPNOTSUPP)
        sock.close()

    def test_messages_and_memory(self):
        self.near.send(b"hello", tag=7)
        self.assertEqual(self.near.queue.expect(rddp.SEND).tag, 7)
        event = self.far.queue.expect(rddp.RECEIVE)
        self.assertEqual((event.endpoint, self.inbox[:event.length]), (2, b"hello"))
        self.inbox[1:3] = b"EL"
        self.assertEqual((self.inbox[:5], self.inbox[0], len(self.inbox[:])), (b"hELlo", ord("h"), len(self.inbox)))
        theirs = rddp.Memory(16, rddp.LOCAL_WRITE | rddp.REMOTE_READ | rddp.REMOTE_WRITE | rddp.REMOTE_ATOMIC)
        mine = rddp.Memory(bytearray(b"sixteen octets.."), rddp.LOCAL_WRITE)
        self.near.write(mine.piece(8), theirs.stag, theirs.to, flags=rddp.QUIET)
        self.near.read(mine.piece(0, 8), theirs.stag, theirs.to)
        self.near.queue.expect(rddp.READ)
        self.assertEqual(bytes(mine.octets), b"octets..octets..")
        count = rddp.Memory(8, rddp.LOCAL_WRITE)
        for step in (3, 4):
            self.near.fetch_add(count, theirs.stag, theirs.to + 8, step)
            self.near.queue.expect(rddp.FETCH_ADD)
        self.assertEqual(int.from_bytes(count.octets, sys.byteorder), 3)
        self.near.cmp_swap(count, theirs.stag, theirs.to + 8, 7, 1)
        self.near.queue.expect(rddp.CMP_SWAP)
        self.assertEqual(int.from_bytes(theirs.octets[8:], sys.byteorder), 1)

    def test_a_file_is_read_by_the_peer(self):
        octets = bytes(range(256)) * 300
        with tempfile.TemporaryFile() as file:
            file.write(octets)
            file.flush()
            whole, part = rddp.Memory(file, rddp.REMOTE_READ), rddp.Memory(file, rddp.REMOTE_READ, start=1000, stop=3000)
            for start, stop, error in ((2, 1, ValueError), (-1, 2, ValueError), (0, len(octets) + 1, OSError)):
                with self.assertRaises(error):
                    rddp.Memory(file, rddp.REMOTE_READ, start=start, stop=stop)
            with self.assertRaises(OSError) as refused:
                rddp.Memory(file, rddp.LOCAL_WRITE)
            self.assertEqual(refused.exception.errno, errno.EINVAL)
        self.assertEqual((len(whole), len(part), whole.octets), (len(octets), 2000, None))
        mine = rddp.Memory(len(octets), rddp.LOCAL_WRITE)
        self.near.read(mine, whole.stag, whole.to)
        self.near.queue.expect(rddp.READ)
        self.assertEqual(mine[:], octets)
        self.near.read(mine.piece(0, 500), part.stag, part.to + 1500)
        self.near.queue.expect(rddp.READ)
        self.assertEqual(mine[:500], octets[2500:3000])
        self.near.send(part.piece(8, 16), flags=rddp.QUIET)
        event = self.far.queue.expect(rddp.RECEIVE)
        self.assertEqual(self.inbox[:event.length], octets[1008:1024])
        whole.close()
        self.near.read(mine.piece(0, 1), whole.stag, whole.to)
        with self.assertRaisesRegex(rddp.WorkFailed, "the peer refused the Read"):
            self.near.queue.expect(rddp.READ)

    def test_the_queue_can_be_selected(self):
        self.assertEqual(self.near.queue.events(timeout=0), [])
        self.assertFalse(select.select([self.far.queue], [], [], 0)[0])
        self.near.send(b"", flags=rddp.QUIET)
        self.assertTrue(select.select([self.far.queue], [], [], 20)[0])

    def test_a_refused_read_is_told_in_words(self):
        # RFC 5040 §4.8
        theirs, mine = rddp.Memory(8, rddp.REMOTE_READ), rddp.Memory(8, rddp.LOCAL_WRITE)
        self.near.read(mine, theirs.stag, theirs.to + 8)
        with self.assertRaisesRegex(rddp.WorkFailed, "RDMA Read: the peer refused the Read or atomic"):
            self.near.queue.expect(rddp.READ)
        with self.assertRaisesRegex(rddp.WorkFailed, "0x0101, RDMAP remote protection error: base or bounds"):
            self.near.queue.expect(rddp.CLOSED)
        self.assertEqual(self.near.info().terminate_received, 0x0101)

    def test_memory_that_is_gone_is_deregistered(self):
        memory = rddp.Memory(8, rddp.REMOTE_READ)
        stag = memory.stag
        del memory
        with self.assertRaises(OSError):
            rddp._call("ddp_deregister", ctypes.c_uint32(stag))

    def test_errors_are_those_of_the_calls(self):
        with self.assertRaises(OSError) as raised:
            self.near.send(bytes(513))
        self.assertEqual(raised.exception.errno, errno.EMSGSIZE)
        self.assertTrue(self.near.info().revision in (1, 2) and self.near.info().private_data == b"")
        self.assertEqual(rddp.mode_info(self.near.sock).raw, 1)


class Alone(unittest.TestCase):
    def test_without_the_library_the_remedy_is_told(self):
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        asked = "import rddp\ntry: rddp.Queue()\nexcept rddp.NotLoaded as error: print(error)"
        said = subprocess.run([sys.executable, "-c", asked], env=clean, capture_output=True, text=True, check=True,
                              cwd=pathlib.Path(rddp.__file__).parent).stdout
        self.assertIn("start the program with `rddp run", said)

    def test_the_version_of_the_module_is_that_of_the_library(self):
        project = pathlib.Path(__file__).with_name("pyproject.toml").read_text()
        self.assertIn(f'version = "{rddp.version()}"', project)


if __name__ == "__main__":
    unittest.main(verbosity=1)

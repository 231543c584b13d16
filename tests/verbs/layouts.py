#!/usr/bin/env python3
"""Checks the C structures of verbs-layout against the headers of libibverbs-dev and librdmacm-dev.

The sizes and offsets that the Rust code asserts (`layout!` in verbs-layout) become
assertions of a C file, which is compiled with the headers. A header of another release may know
longer structures: of those only the offsets are compared.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ABI = pathlib.Path(__file__).resolve().parents[2] / "verbs-layout/src"
HEADERS = ["infiniband/verbs.h", "rdma/rdma_cma.h"]
# Structures that have grown since release 44.
GROWN = {"verbs_context", "ibv_qp_ex", "ibv_port_attr"}
# Members that the headers of release 44 do not know yet.
NEWER = {("ibv_port_attr", "active_speed_ex")}
# Members of C that have other names in Rust.
NAMES = {
    ("ibv_mw", "kind"): "type",
    ("ibv_send_wr", "remote_addr"): "wr.rdma.remote_addr",
    ("ibv_send_wr", "rkey"): "wr.rdma.rkey",
    ("ibv_send_wr", "rest_of_compare_add"): "wr.ud.remote_qkey",
    ("ibv_send_wr", "swap"): "wr.atomic.swap",
    ("ibv_send_wr", "atomic_rkey"): "wr.atomic.rkey",
    ("ibv_send_wr", "mw"): "bind_mw.mw",
    ("ibv_send_wr", "mw_rkey"): "bind_mw.rkey",
    ("ibv_send_wr", "bind_info"): "bind_mw.bind_info",
    ("ibv_cq_ex", "functions"): "start_poll",
    ("ibv_qp_ex", "functions"): "wr_atomic_cmp_swp",
    ("verbs_context", "private"): "priv",
    ("verbs_context", "from_advise_mr"): "advise_mr",
    ("verbs_context", "from_destroy_flow"): "ibv_destroy_flow",
    ("verbs_context", "from_open_xrcd"): "open_xrcd",
    ("rdma_cm_id", "route.src_addr"): "route.addr.src_addr",
    ("rdma_cm_id", "route.dst_addr"): "route.addr.dst_addr",
    ("rdma_cm_id", "route.sgid"): "route.addr.addr.ibaddr.sgid",
    ("rdma_cm_id", "route.dgid"): "route.addr.addr.ibaddr.dgid",
    ("rdma_cm_id", "route.pkey"): "route.addr.addr.ibaddr.pkey",
}
LAYOUT = re.compile(r"^layout!\((\w+): (\d+)((?:,\s*[\w.]+ \d+)*),?\s*\);", re.M)
FIELD = re.compile(r"([\w.]+) (\d+)")


def assertions():
    """Yields lines of C."""
    for path in sorted(ABI.glob("*.rs")):
        for name, size, fields in LAYOUT.findall(path.read_text()):
            if name not in GROWN:
                yield f'_Static_assert(sizeof(struct {name}) == {size}, "size of {name}");'
            for field, offset in FIELD.findall(fields):
                if (name, field) in NEWER:
                    continue
                member = NAMES.get((name, field), field)
                place = f"offsetof(struct {name}, {member})"
                if name == "verbs_context":
                    # Programs know a member by its distance from the end.
                    place = f"offsetof(struct {name}, context) - {place}"
                    offset = 368 - int(offset)
                yield f'_Static_assert({place} == {offset}, "{name}.{field}");'


def main():
    lines = [f"#include <{header}>" for header in HEADERS] + ["#include <stddef.h>", *assertions()]
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layouts.c"
        source.write_text("\n".join(lines) + "\n")
        probe = [compiler, "-E", "-o", os.devnull, "-x", "c", "-"]
        includes = "".join(f"#include <{header}>\n" for header in HEADERS)
        if subprocess.run(probe, input=includes, text=True, capture_output=True).returncode:
            print("layouts: no compiler, or no headers: install libibverbs-dev and librdmacm-dev")
            return 1
        said = subprocess.run([compiler, "-fsyntax-only", source], capture_output=True, text=True)
    if said.returncode:
        print(said.stderr)
    print(f"layouts: {len(lines) - len(HEADERS) - 1} sizes and offsets, "
          f"{'some differ' if said.returncode else 'all as in the headers'}")
    return 1 if said.returncode else 0


if __name__ == "__main__":
    sys.exit(main())

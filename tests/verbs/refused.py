#!/usr/bin/env python3
"""Compiles refused.c with the headers of libibverbs-dev, and looks at what librddp_verbs.so tells
of calls that it refuses: with RDDP_LOG one line for each, which names the verb and says why, and
for what no program can do on this device a line on standard error without it, once."""

import subprocess
import sys
import tempfile

from c_program import build

# What is refused twice; the verb, its error and words of the reason, where it is a call that is
# refused; words of the line on standard error.
REFUSALS = [
    ("numbers", "ibv_modify_qp: EINVAL: this device connects by librdmacm", "-R at both ends"),
    ("extensions", "ibv_post_send: EOPNOTSUPP: atomics and immediate", "RDDP_VERBS_EXTENSIONS=on"),
    ("datagrams", "ibv_create_qp: EOPNOTSUPP: this device has no datagrams", "RDMA_PS_TCP"),
    ("xrc", "ibv_create_qp: EOPNOTSUPP: this device has no XRC", "RC queue pairs"),
    ("listens for datagrams", "rdma_listen: EOPNOTSUPP: this device has no datagrams",
     "RDMA_PS_TCP"),
    ("listens for XRC", "rdma_listen: EOPNOTSUPP: this device has no XRC", "RC queue pairs"),
    ("listens elsewhere", "rdma_listen: EOPNOTSUPP: the device connects in RDMA_PS_TCP alone",
     None),
    ("XRC endpoint", "rdma_create_ep: EOPNOTSUPP: this device has no XRC", "RC queue pairs"),
    ("datagram socket", "rsocket: EOPNOTSUPP: this device has no datagrams", "RDMA_PS_TCP"),
    ("unconnected", "ibv_post_send: ENOTCONN: the queue pair has no connection", None),
    ("ibv_create_srq_ex, XRC", "ibv_create_srq_ex: EOPNOTSUPP: this device has no XRC",
     "RC queue pairs"),
    *((verb, f"{verb}: EOPNOTSUPP: this device has no XRC", "RC queue pairs")
      for verb in ("ibv_open_xrcd", "ibv_open_qp", "ibv_get_srq_num")),
    *((verb, f"{verb}: EOPNOTSUPP: the device does not have this", None)
      for verb in ("ibv_alloc_dm", "ibv_alloc_null_mr", "ibv_alloc_td", "ibv_alloc_parent_domain",
                   "ibv_create_counters", "ibv_create_flow", "ibv_create_flow_action_esp",
                   "ibv_create_wq", "ibv_create_rwq_ind_table", "ibv_query_rt_values_ex",
                   "ibv_advise_mr", "ibv_modify_cq", "ibv_modify_qp_rate_limit",
                   "ibv_create_srq_ex")),
    ("changed", None, "RDDP_VERBS_CRC=off"),
    ("missing", "ibv_import_pd: EOPNOTSUPP: the device does not have this", None),
    ("handle", "ibv_dereg_mr: EINVAL: the program has no such object", None),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        built = build(sys.argv[1], folder, "refused")
        if not built:
            return 1
        program, environment = built
        for what, event, words in REFUSALS:
            for log in ("", "verbs=info"):
                ended = subprocess.run([program, what], env=environment | {"RDDP_LOG": log},
                                       capture_output=True, text=True, timeout=60)
                lines = ended.stderr.splitlines()
                told = [line for line in lines if line.startswith("rddp: ")]
                events = [line for line in lines if "verbs::refused: " in line]
                right = (ended.returncode == 0 and len(told) + len(events) == len(lines)
                         and len(told) == (words is not None)
                         and all(words in line for line in told)
                         and len(events) == (2 if log and event else 0)
                         and all(event in line for line in events))
                if not right:
                    failed += 1
                    print(f"refused: {what}: {ended.returncode} {ended.stdout}{ended.stderr}")
    print(f"refused: {f'{failed} failed' if failed else 'each says why'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

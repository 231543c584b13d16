"""Prints the results of iperf3 -J: iperf3.py FILE OCTETS STREAMS

It counts in blocks, and the end that receives stops when it is told that all has been sent: what
can be compared is how much was sent, and that something arrived.
"""

import json
import sys

path, octets, streams = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
told = json.load(open(path))
if "error" in told:
    sys.exit(print(told["error"]))
sent = told["end"]["sum_sent"]["bytes"]
received = told["end"]["sum_received"]["bytes"]
print(f"{len(told['end']['streams'])} streams of {streams},",
      "all sent" if sent >= min(octets, 4 << 20) else f"{sent} sent",
      "some received" if received else "nothing received")

#!/usr/bin/env python3
"""Takes the commands of a page: page.py PAGE FOLDER.

Blocks in `sh` become FOLDER/page.sh, in their order. A block that names a file behind its language
(```c hello.c) becomes that file at its place between them. Blocks in `console` are not run: they
need what the copy of a system has not (a desktop, systemd, another host).
"""

import pathlib
import re
import sys

# A page says `sleep` where something that it has started has to be ready. Here that is waited for,
# as long as a busy machine takes: the process listens, or has begun its capture, or has been
# connected for as long as the page says.
PRELUDE = """
set -euo pipefail
start=$PWD
sleep() {
    for _ in $(seq 600); do
        if ss -Hltnp | grep -q "pid=$!," || [ -s rddp.pcapng ]; then return; fi
        if ss -Htnp | grep -q "pid=$!,"; then command sleep "$1"; return; fi
        command sleep 0.1
    done
    echo "not ready: $*" >&2
    exit 1
}
"""

page, folder = map(pathlib.Path, sys.argv[1:])
blocks = re.findall(r"^```(\w*)[,\w]*(?: (\S+))?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
script = [PRELUDE]
count = 0
for number, (language, name, text) in enumerate(blocks):
    if name:
        (folder / f"block{number}").write_text(text)
        script.append(f'cp "$start/block{number}" "$start/{name}"')
    elif language == "sh":
        # Each command is shown with its output, as on a terminal.
        script += ["set -v", text.rstrip("\n"), "{ set +v; } 2>/dev/null"]
        count += 1
if not count:
    sys.exit(f"{page}: no commands")
(folder / "page.sh").write_text("\n".join(script) + "\n")

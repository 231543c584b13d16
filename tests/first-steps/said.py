"""Runs commands in the installed system, as any user, and looks at what they say: a line of CHECKS
is what is promised, the command that shows it, and patterns that its output has to match. The
folder is the same for all, so that later commands use files of earlier ones. A command that cannot
run on this host says "not looked at: " and why."""

import os
import re
import subprocess
import sys
import tempfile

PRELUDE = r"""
listening() { # PORT: waits until something listens there
    for _ in $(seq 600); do
        if ss -Hltn "sport = :$1" | grep -q .; then return; fi
        sleep 0.1
    done
    echo "nothing listens on $1"
    exit 1
}
linked() { cc -std=gnu11 -Wall -Wextra -Werror "$1.c" $(pkg-config --cflags --libs rddp_sockets) -o "$1"; }
example() { cp "/usr/share/doc/librddp-dev/examples/$1.c" . && linked "$1"; }
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"""

# Failures of a command are output too: `|| echo exit $?`.
CHECKS = [
    # C
    ("words for kinds, statuses and Terminates, and the version", r"""
cat >words.c <<'END'
#include <errno.h>
#include <stdio.h>
#include <rddp/ddp.h>
int main(void) {
    printf("%s|%s|%s|%s\n", ddp_version(), ddp_kind_name(DDP_WRITE), ddp_strerror(DDP_CLOSED, EREMOTEIO),
           ddp_terminate_name(0x0101));
}
END
linked words; ./words""", [r"^\d+\.\d+\.\d+\|RDMA Write\|the peer sent a Terminate\|"
                           r"RDMAP remote protection error: base or bounds violation$"]),
    ("linked programs need the library by its SONAME, and -dev has the link",
     "readelf -d words; basename $(readlink -f $(pkg-config --variable=libdir rddp_sockets)/librddp_sockets.so)",
     [r"\(NEEDED\).*\[librddp_sockets\.so\.0\]", r"^librddp_sockets\.so\.0$"]),
    ("a preloaded and linked program has the library once",
     "rddp run -- sh -c 'cat /proc/self/maps' | grep -o '/[^ ]*librddp_sockets.*' | sort -u",
     [r"^/[^ ]*/librddp_sockets\.so\.0$"]),
    ("the ES-API", r"""
example exs_put; ./exs_put server 7601 arrived & listening 7601
./exs_put client 127.0.0.1 7601 exs_put.c; wait $!; cmp exs_put.c arrived && echo same""",
     [r"^\d+ octets sent$", r"^same$"]),
    ("many clients in one poll loop",
     "example many; ./many server 7602 30 & listening 7602; ./many client 127.0.0.1 7602 30; wait",
     [r"^300 answers to 30 clients$", r"^300 messages of 30 clients answered$"]),
    # Python
    ("the module", "rddp run -- python3 -c 'import rddp; print(rddp.version(), rddp.terminate_name(0x1203))'",
     [r"^\d+\.\d+\.\d+ DDP untagged buffer error: invalid MSN, MSN range is not valid$"]),
    ("without the library the module tells the remedy",
     "python3 -c 'import rddp; rddp.Queue()' || echo exit $?", [r"start the program with `rddp run", r"^exit 1$"]),
    # To install
    ("a man page", "zcat /usr/share/man/man1/rddp-serve.1.gz", [r"^\.SH NAME"]),
    ("completions for three shells", """
cd /usr/share; ls bash-completion/completions/rddp zsh/vendor-completions/_rddp fish/vendor_completions.d/rddp.fish""",
     [r"^bash", r"^zsh", r"^fish"]),
    ("socket activation", r"""
command -v systemd-socket-activate >/dev/null || { echo "not looked at: no systemd-socket-activate"; exit; }
mkdir -p srv; echo activated >srv/a
systemd-socket-activate -l 127.0.0.1:7603 rddp serve srv & listening 7603
rddp get 127.0.0.1:7603/a b; cat b""", [r"^activated$"]),
    ("a folder for images", """
rddp install --prefix $PWD/prefix; readlink prefix/lib/librddp_sockets.so
prefix/bin/rddp run --ddp -- sh -c 'echo $LD_PRELOAD'""",
     [r"^librddp_sockets\.so\.0$", r"/prefix/lib/librddp_sockets\.so\.0$"]),
    # The command
    ("errors as JSON, with a schema", "rddp ping --json 127.0.0.1:1 || echo exit $?",
     [r'^\{"schema":1,"error":\{"kind":"peer","exit_code":3,', r"^exit 3$"]),
    ("a folder that is not there", "rddp serve /nonexistent || echo exit $?",
     [r"/nonexistent: no such directory"]),
    # In a network of its own ports below 1024 need a right, whatever the host's sysctl says.
    ("a port without the right to it", "timeout 20 rddp serve . --port 80 || echo exit $?",
     [r"CAP_NET_BIND_SERVICE", r"^exit 1$"]),
    ("put as scp writes it", "touch f; rddp put f host:/path || echo exit $?", [r"write host/path"]),
    ("serve stamps its lines; get says Gbit/s; -q and -v before the subcommand", r"""
mkdir -p srv; head -c 100000 /dev/urandom >srv/c; rddp serve srv --port 7604 & listening 7604
rddp get 127.0.0.1:7604/c d; rddp -q get 127.0.0.1:7604/c e; rddp -v get 127.0.0.1:7604/c g
rddp get --json 127.0.0.1:7604/c h
rddp ping 127.0.0.1:7604 || echo exit $?; rddp doctor 127.0.0.1:7604""",
     [r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*serving srv", r"MB/s \(\d+\.\d+ Gbit/s\)", r"INFO connect",
      r'^\{"schema":1,"file":"c"', r"this is rddp serve"]),
    # Files
    ("trees, skipped where they are the same, over several connections, with names, times, modes and holes", r"""
mkdir -p in srv2; rddp serve srv2 --writable --port 7606 & listening 7606
for count in $(seq 300); do echo $count >in/$count; done; echo x >in/$(printf '\377'); chmod 640 in/7; touch -d 2001-02-03 in/7
truncate -s 3G in/hole; echo end >>in/hole
rddp put -r in 127.0.0.1:7606/; rddp put -r -P 4 in 127.0.0.1:7606/; echo new >in/8; rddp put -r -P 4 in 127.0.0.1:7606/
rddp get -r -P 2 127.0.0.1:7606/in out; diff -r in out/in && echo the same
stat -c '%a %y' out/in/7; du -m srv2/in/hole out/in/hole; rddp ls 127.0.0.1:7606/in | wc -l; rddp put in/1 in/2 127.0.0.1:7606/some""",
     [r"^302 files: 3\.0 GiB", r"^0 files: .*\n302 unchanged", r"^1 file: .*\n301 unchanged", r"^the same$",
      r"^640 2001-02-03", r"^[01]\tsrv2/in/hole\n[01]\tout/in/hole$", r"^302$", r"^2 files"]),
    ("standard input and output; checksums", r"""
mkdir -p srv3; rddp serve srv3 --writable --port 7607 & listening 7607
seq 100000 | rddp put - 127.0.0.1:7607/numbers; rddp -q get 127.0.0.1:7607/numbers - 2>/dev/null | tail -1
for check in crc32c sha256 none; do rddp put -I --checksum $check srv3/numbers 127.0.0.1:7607/copy; done; sha256sum srv3/copy
rddp put srv3/numbers 127.0.0.1:7607/copy""",
     [r"^numbers: ", r"^100000$", r"^sha256 ([0-9a-f]{64})\n(.*\n)*\1  srv3/copy$", r"^copy: .*unchanged"]),
    # perf
    ("perf: iterations, time and intervals, reverse, both ways, atomics, JSON", r"""
rddp perf server --port 7605 & listening 7605
client() { rddp perf client 127.0.0.1:7605 "$@"; }
client -n 100 -s 64 --op write; client -t 0.5 -i 0.2 -s 4K --op write; client -n 100 -R -s 4K --op send
client -n 100 -b -s 4K --op write; client -n 100 --op fetch-add,cmp-swap; client -t 0.5 -i 0.2 -s 4K --op write --json
""", [r"^write +64 ", r"^write +4K +-?0\.\d\d - 0\.\d\d s .*MB/s", r"from the server", r"as many the other way",
      r"^fetch-add ", r"^cmp-swap ", r'^\{"schema":1,"interval":\{"op":"write"', r'^\{"schema":1,"results":\[']),
    # Something to watch
    ("run -v and RDDP_LOG, also into files: what the library has switched, framed and left alone", r"""
mkdir -p web; echo hello >web/a
fetch() { python3 -c "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:$1/a').read())"; }
export -f fetch
rddp run --ddp -- python3 -m http.server 7608 --bind 127.0.0.1 --directory web & listening 7608
rddp run -v --ddp -- bash -c 'fetch 7608'
RDDP_LOG=switch=info,rnic=debug RDDP_LOG_FILE=$PWD/%p.log rddp run --ddp -- bash -c 'fetch 7608'; cat *.log
python3 -m http.server 7609 --bind 127.0.0.1 --directory web & listening 7609
rddp run -v --both -- bash -c 'fetch 7609'""",
     [r"INFO switch: connect 127.0.0.1:7608: framed, DDPMODE$", r"^(.*\n)*.*framed, DDPMODE\n(.*\n)*.*framed, DDPMODE$",
      r"WARN switch: connect 127.0.0.1:7609: .*connected again in plain TCP$", r"^b'hello\\n'$"]),
    ("a word for the log that means nothing", r"""
for variable in RUST_LOG RDDP_LOG; do env $variable=nonsense rddp ls 127.0.0.1:1; done""",
     [r'^rddp: RUST_LOG: "nonsense" is no level', r'^rddp: RDDP_LOG: "nonsense" is neither .* try: RDDP_LOG=info']),
    ("stat, ss and top: counts, rates, JSON, OpenMetrics, and the socket by which ss -e names it", r"""
rddp perf server --port 7611 & listening 7611
rddp perf client 127.0.0.1:7611 --op write -s 4K -t 60 >/dev/null & client=$!
for _ in $(seq 600); do if rddp ss $client 2>/dev/null | grep -q ^RTS; then break; fi; sleep 0.1; done
rddp stat $client; rddp stat -i 0.2 -n 1 $client; rddp stat --json $client; rddp stat --openmetrics $client; rddp ss $client
ss -tneHO | grep -o "$(rddp ss $client | grep -o 'sk:[0-9a-f]*') "
script -qc "stty cols 120 rows 20; rddp stat --top -i 0.2 -n 2 $client" /dev/null
kill -9 $client; wait $client 2>/dev/null; rddp stat $client || echo exit $?""",
     [r"^RDMA Writes +[1-9]", r"^process +conns +out MB/s", r'^\{"schema":1,"time":.*"iwOutRdmaWrites":[1-9]',
      r'^irdma_iwOutRdmaWrites_total\{.*\} [1-9]', r"^# EOF", r"^RTS .* sk:[0-9a-f]+ octets:.* rtt:", r"^sk:[0-9a-f]+ $",
      r"1 processes, 1 connections, .* MB/s out", r"there is no process \d+$", r"^exit 1$"]),
    ("captures of both ends, without root, that Wireshark opens", r"""
mkdir -p srv4 captures; echo hello >srv4/a; export RDDP_CAPTURE=captures/%p.pcapng
rddp serve srv4 --port 7613 & listening 7613
rddp get 127.0.0.1:7613/a
for file in captures/*; do stat -c %a $file; tshark -r $file -Y iwarp_mpa; rddp decode $file; done
RDDP_CAPTURE=/nonexistent/file rddp get 127.0.0.1:7613/a b || echo exit $?""",
     [r"^600\n(.*\n)*600$", r"MPA Request Frame\n(.*\n)*.*MPA Request Frame$", r"RDMA Read Response", r" 0 problems$",
      r'"/nonexistent/file": No such file']),
]


def run(command, folder):
    ended = subprocess.run(["bash", "-c", PRELUDE + command], cwd=folder, env={**os.environ, "HOME": folder},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    return ended.stdout.decode(errors="replace")


faults = 0
with tempfile.TemporaryDirectory() as scratch:
    for what, command, patterns in CHECKS:
        said = run(command, scratch)
        if said.startswith("not looked at: "):
            print(f"{said.strip()}: {what}")
            continue
        missing = [pattern for pattern in patterns if not re.search(pattern, said, re.MULTILINE)]
        print(f"{'NOT SO' if missing else 'ok'}    {what}", flush=True)
        if missing:
            print(f"{command.strip()}\n{said}not matched: {missing}")
            faults += 1
sys.exit(1 if faults else 0)

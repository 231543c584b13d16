# Cases of NVMe over RDMA: Linux's host with disks of `rddp block serve`, our initiator with a disk
# of Linux's target. Read by ./matrix with ".", not run.
# shellcheck shell=bash disable=SC2034,SC2154

nqn=nqn.2026-11.lab
# The host that nvme-guest.sh is.
guest_host=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001

nvme_hosts() {
    needs_host || return
    nvme_case "Linux's NVMe host writes to a disk of rddp block serve" writes_to_disk
    nvme_case "Linux's NVMe host finds what rddp block ls shows, and only the host that is named" finds_disks
    nvme_case "Linux's NVMe host has a file system on a disk of rddp block serve" file_system_is_clean
    nvme_case "Linux's NVMe host writes by four queues, and reads the same" queues_are_verified
    nvme_case "Linux's NVMe host has a disk whose server is killed ${KILLS:-3} times" survives_kills
}

# nvme_case LINE FUNCTION: a case with a server, which ends with it.
nvme_case() {
    wanted "$1" || return 0
    start_clock
    server=
    : >"$work/passive"
    "$2" >"$work/active" 2>&1
    local status=$?
    stop_serving || status=1
    [ "$status" = 0 ] || in_guest 20 "dmesg | tail -n 20" >>"$work/active"
    verdict "$status" "$work/passive" "$work/active"
    in_guest 20 "nvme disconnect-all" >/dev/null 2>&1
}

# serve WORDS...: starts a server for the guest, and waits until it listens.
serve() {
    : >"$work/listening"
    "$guest" host "$rddp" block serve --protocols nvme --bind 10.77.0.1 --nqn $nqn --json "$@" \
        >"$work/listening" 2>>"$work/passive" &
    server=$!
    until [ -s "$work/listening" ]; do kill -0 "$server" || return; sleep 0.05; done
}

stop_serving() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; }
    server=
}

# as_host SECONDS COMMAND: runs a command of nvme-guest.sh in the guest.
as_host() { in_guest "$1" "$(cat "$here/nvme-guest.sh"); $2"; }

block_ls() {
    "$guest" host "$rddp" block ls --json --host-nqn $guest_host "nvme://10.77.0.1/$1" |
        python3 -c 'import json, sys
for disk in json.load(sys.stdin)["disks"]: print(disk["name"], *filter(None, [disk["size"]]))'
}

writes_to_disk() {
    truncate -s 16M "$work/disk"
    serve --writable "$work/disk" && in_guest 60 "target=10.77.0.1 nqn=$nqn mib=8; $(cat "$lab/peers/nvme-connect.sh")"
}

finds_disks() {
    local name
    truncate -s 8M "$work/a" && truncate -s 24M "$work/b"
    serve --allow-host $guest_host "$work/a" "$work/b" || return
    {
        block_ls "" | sort | sed 's/^/discovered /'
        for name in a b; do block_ls "$nqn:$name"; done | sed 's/^/connected /'
    } >"$work/ours"
    [ "$(grep -c . "$work/ours")" = 4 ] || return
    as_host 60 lists >"$work/linux" 2>&1
    diff "$work/ours" "$work/linux" && as_host 30 "is_refused $nqn:a" &&
        grep -q "wants $nqn:a: no --allow-host names it" "$work/passive"
}

file_system_is_clean() {
    truncate -s 96M "$work/disk"
    serve --writable "$work/disk" && as_host 120 "file_system $nqn" && stop_serving &&
        e2fsck -f -n "$work/disk"
}

# Four I/O queues have carried commands, each kind of transfer was used, and Wireshark and `rddp
# decode` find nothing wrong.
queues_are_verified() {
    local pid mib=${FIO_MIB:-24}
    rm -f "$work/nvme.pcapng"
    truncate -s "${mib}M" "$work/disk"
    RDDP_CAPTURE=$work/nvme.pcapng serve --writable "$work/disk" &&
        as_host 20 "connects $nqn" && as_host $((60 + 2 * mib)) "disk=/dev/nvme0n1; verifies $mib" &&
        "$rddp" ss --json >"$work/ss" && as_host 20 "nvme disconnect-all" && pid=$server && stop_serving &&
        "$here/nvme-capture" "$rddp" "$pid" "$work/nvme.pcapng" "$work/ss"
}

# Each time the kernel connects again, and goes on: fio finds what it has written, and both ends
# have the same in the end.
survives_kills() {
    local kills=${KILLS:-3} round fio sum
    truncate -s 32M "$work/disk"
    serve --writable "$work/disk" && as_host 20 "connects $nqn" || return
    as_host $((120 + 30 * kills)) "disk=/dev/nvme0n1; rm -f /tmp/enough; verifies_until /tmp/enough 8" &
    fio=$!
    for ((round = 1; round <= kills; round++)); do
        sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"
        kill -KILL "$server"
        wait "$server" 2>/dev/null
        serve --writable "$work/disk" && as_host 60 "is_back $round" || return
    done
    in_guest 20 "touch /tmp/enough" && wait "$fio" || return
    sum=$(in_guest 60 "echo 3 >/proc/sys/vm/drop_caches; md5sum </dev/nvme0n1") &&
        in_guest 20 "nvme disconnect-all" && [ "$sum" = "$(md5sum <"$work/disk")" ]
}

# Linux's NVMe target: its disk is listed, written and read by two queues, and measured. The last
# case of a guest, for the kernel keeps completion queues of it.
nvme_target() {
    needs_host || return
    wanted "a disk of Linux's NVMe target is copied both ways" || return 0
    start_clock
    in_guest 60 "$(cat "$lab/peers/nvme-target.sh")" >"$work/target" 2>&1
    copies_nvme >"$work/active" 2>&1
    verdict $? "$work/target" "$work/active"
}

copies_nvme() {
    local uri=nvme://10.77.0.2/lab sum
    { head -c 10M /dev/urandom && head -c 12M /dev/zero && head -c 10M /dev/urandom; } >"$work/disk"
    "$guest" host timeout 20 "$rddp" block ls nvme://10.77.0.2 | grep '^lab ' &&
        "$guest" host timeout 60 "$rddp" block copy -P 2 "$work/disk" "$uri" &&
        "$guest" host timeout 60 "$rddp" block copy -P 2 "$uri" "$work/copy" &&
        cmp "$work/disk" "$work/copy" &&
        sum=$(in_guest 20 "md5sum /tmp/nvme-disk") &&
        [ "${sum%% *}" = "$(md5sum <"$work/disk" | cut -d ' ' -f 1)" ] &&
        head -c 4096 /dev/urandom >"$work/short" &&
        "$guest" host timeout 20 "$rddp" block copy "$work/short" "$uri" &&
        sum=$(in_guest 20 "head -c 4096 /tmp/nvme-disk | md5sum") &&
        [ "${sum%% *}" = "$(md5sum <"$work/short" | cut -d ' ' -f 1)" ] &&
        "$guest" host timeout 20 "$rddp" block bench --json -t 1 "$uri" | grep '"requests":[1-9]'
}

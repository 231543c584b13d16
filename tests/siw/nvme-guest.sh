# The guest's part of the cases in matrix-nvme.sh: Linux's NVMe host, by Debian's nvme-cli. The
# guest's shell reads this, and then calls one of the functions.
# shellcheck shell=dash

id=00000000-0000-4000-8000-000000000001
host=nqn.2014-08.org.nvmexpress:uuid:$id
stranger=00000000-0000-4000-8000-000000000002
target="-t rdma -a 10.77.0.1 -s 4420"

# nvme_as ID COMMAND WORDS...: nvme, as that host.
# shellcheck disable=SC2086
nvme_as() {
    local as=$1 command=$2
    shift 2
    nvme "$command" $target --hostnqn "nqn.2014-08.org.nvmexpress:uuid:$as" --hostid "$as" "$@"
}

# disks: the kernel's disks by name, with their subsystems and octets.
disks() {
    local disk
    for disk in /sys/block/nvme*n*; do
        # Not the paths of a disk that Linux has for several controllers, and no disk.
        case ${disk##*/} in *c*n* | *'*'*) continue ;; esac
        echo "${disk##*/} $(cat "$disk/device/subsysnqn") $(($(cat "$disk/size") * 512))"
    done
}

# lists: the subsystems by discovery and those that were connected, as `rddp block ls` has them.
lists() {
    modprobe nvme_rdma || return
    nvme_as $id discover | sed -n 's/^subnqn: *//p' | sort | sed 's/^/discovered /'
    nvme_as $id connect-all --reconnect-delay 1 || return
    until [ "$(disks | grep -c .)" = 2 ]; do usleep 100000; done
    disks | cut -d ' ' -f 2- | sort | sed 's/^/connected /'
    nvme disconnect-all
}

# is_refused NQN: another host than the one that is named sees no subsystem, and gets none.
is_refused() {
    nvme_as $stranger discover 2>&1 | grep subnqn && return 1
    nvme_as $stranger connect -n "$1" && return 1
    [ -z "$(disks)" ]
}

# connects NQN: by two queues to read and two to write, which Linux has for two processors. Sets
# `disk`.
connects() {
    modprobe nvme_rdma || return
    nvme_as $id connect -n "$1" --nr-io-queues 2 --nr-write-queues 2 --reconnect-delay 1 || return
    until disk=$(disks | grep -F " $1 "); do usleep 100000; done
    disk=/dev/${disk%% *}
}

# file_system NQN: a tree of files, which are the same once they are read from the disk again.
file_system() {
    local tree=/lib/modules
    connects "$1" && modprobe ext4 && mkfs.ext4 -q "$disk" && mkdir -p /tmp/tree &&
        mount -t ext4 "$disk" /tmp/tree && cp -a $tree /tmp/tree/ && umount /tmp/tree || return
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ext4 "$disk" /tmp/tree && diff -r $tree "/tmp/tree/${tree##*/}" && echo "files: $(find /tmp/tree -type f | wc -l)" &&
        rm -r "/tmp/tree/${tree##*/}/"*/kernel/fs && umount /tmp/tree && e2fsck -f -n "$disk" &&
        nvme disconnect-all
}

# verifies MIB WORDS...: fio writes so many MiB, in blocks of 4 KiB to 1 MiB, and reads the same.
verifies() {
    local mib=$1
    shift
    fio --name=verify --filename="$disk" --rw=randwrite --bssplit=4k/50:16k/20:64k/15:256k/10:1m/5 \
        --size="$((mib / 2))m" --numjobs=2 --offset_increment="$((mib / 2))m" --ioengine=libaio --direct=1 \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal "$@" >/tmp/fio.out 2>&1 ||
        { cat /tmp/fio.out; return 1; }
}

# verifies_until FILE MIB: the same again and again, until there is that file. A request may fail as
# the server goes: siw refuses a post (ENOTCONN) while it changes the state of a queue pair, and
# Linux gives that request up. fio leaves its octets out, and no other request may fail.
verifies_until() {
    local rounds=0
    until [ -e "$1" ]; do
        verifies "$2" --randseed=$rounds --continue_on_error=io || return
        rounds=$((rounds + 1))
    done
    echo "fio: $rounds rounds"
    [ "$(logged 'I/O error, dev nvme')" -le "$(logged 'nvme_rdma_post_send failed with error code -107')" ]
}

# logged TEXT: how often the kernel's log has it.
logged() { dmesg | grep -c "$1"; }

# is_back TIMES: waits until the kernel has connected again so often.
is_back() { until [ "$(logged 'Successfully reconnected')" = "$1" ]; do usleep 200000; done; }

# Cases in which the host's end is a program of libibverbs on librddp_verbs.so, the same binary that
# the guest runs on siw. Read by ./matrix with ".", not run.
# shellcheck shell=bash disable=SC2034,SC2154

# The folder in which the host's programs find the two libraries.
verbs_folder=$SIW_LAB_SHARE/verbs

# verbs_library: our own peer by way of the library, then Debian's programs.
verbs_library() {
    needs_host || return
    local settings="librddp_verbs" peer="env LD_LIBRARY_PATH=$verbs_folder $SIW_LAB_SHARE/verbs-peer"
    peer_on_the_library
    debians_programs
}

peer_on_the_library() {
    local role by
    for role in $roles; do
        for by in $roles; do
            pair "$role" "transfer ops=$all_ops size=0 by=$by"
            pair "$role" "transfer ops=$all_ops size=1048576 count=2 by=$by"
            pair "$role" "transfer ops=$all_ops size=1000 close=$by connections=5"
        done
        pair "$role" "transfer ops=$all_ops size=12345 count=20 by=both"
        pair "$role" "reject connections=10 private=grow request=7 reply=100"
    done
}

# debians_programs: each a server and a client, with PORT and ADDRESS in them. Those that fail now
# and then (docs/verbs-programs.md) are played with VERBS=all alone.
debians_programs() {
    local size
    for size in 64 65000; do
        same_program "rping, $size octets" "rping -s -v -C 20 -S $size -p PORT -a ADDRESS" \
            "rping -c -V -v -C 20 -S $size -p PORT -a ADDRESS"
    done
    same_program "rdma_client" "rdma_server -s ADDRESS -p PORT" "rdma_client -s ADDRESS -p PORT"
    # It closes right behind its only message, at which a kernel that serves it may stop.
    local active_or_not=$roles
    [ "${VERBS:-}" = all ] || active_or_not=passive
    roles=$active_or_not same_program "rdma_xclient" "rdma_xserver -p PORT -c r" \
        "rdma_xclient -s ADDRESS -p PORT -c r"
    same_program "rstream" "rstream -b ADDRESS -p PORT -S 100000 -C 20 -T v" \
        "rstream -s ADDRESS -p PORT -S 100000 -C 20 -T v"
    # Their servers send first, which siw's clients take, but do not ask for.
    local variables="RDDP_VERBS_SPEAKS_FIRST=on"
    same_program "ucmatose" "ucmatose -b ADDRESS -p PORT -c 5" "ucmatose -s ADDRESS -p PORT -c 5"
    perftest_of "ib_write_lat" "-n 50"
    variables=""
    [ "${VERBS:-}" = all ] || return 0
    for size in 64 65536 1000000; do
        perftest_of "ib_send_bw" "-n 50 -s $size"
        perftest_of "ib_write_bw" "-n 50 -s $size"
        perftest_of "ib_read_bw" "-n 50 -s $size"
    done
    perftest_of "ib_send_lat" "-n 50"
    perftest_of "ib_read_lat" "-n 50 -e"
    perftest_of "ib_write_bw" "-n 50 -q 4"
}

perftest_of() { same_program "$1 $2" "$1 -R -F -p PORT $2" "$1 -R -F -p PORT $2 ADDRESS"; }

# same_program NAME SERVER CLIENT: this program at both ends, the host's in either role.
same_program() {
    local role line_of=$1 listens_on # none of them says when it listens
    local on_host="env LD_LIBRARY_PATH=$verbs_folder ${variables:-}"
    for role in $roles; do
        wanted "host $role: $line_of" || continue
        if [ "$role" = active ]; then
            listens_on=guest
            both guest "$(filled "$2" 10.77.0.2)" host "$on_host $(filled "$3" 10.77.0.2)" 60
        else
            listens_on=host
            both host "$on_host $(filled "$2" 10.77.0.1)" guest "$(filled "$3" 10.77.0.1)" 60
        fi
    done
}

# filled COMMAND ADDRESS
filled() {
    local command=${1//PORT/$port}
    echo "${command//ADDRESS/$2}"
}

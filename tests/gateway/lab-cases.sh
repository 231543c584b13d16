# Cases of ./lab. Read with ".", not run.
# shellcheck shell=bash disable=SC2034,SC2154

gateway_port=7472 reverse_port=7473 files_gateway_port=7475

# The address of the programs behind the gateway, and what their guest's name has more than the
# gateway's.
behind=10.77.1.2 server_guest=

# at gateway|server SECONDS COMMAND: runs a command in the guest of one of them.
at() {
    local name=$SIW_LAB_NAME
    [ "$1" = gateway ] || name+=$server_guest
    SIW_LAB_NAME=$name in_guest "$2" "behind=$behind; . /share/lab-guest.sh; $3"
}

start_all() {
    [ "$mode" = list ] && return
    at server 30 start_server && at gateway 30 start_gateway || die "nothing listens in the guest"
}

# apart: gives the server a guest of its own, on the gateway's networks, which has rxe0 alone.
apart() {
    behind=10.77.1.3 server_guest=b settings="server in a guest of its own:"
    [ "$mode" = list ] && return
    SIW_LAB_BESIDE=$SIW_LAB_NAME SIW_LAB_NAME=$SIW_LAB_NAME$server_guest "$guest" up >"$work/boot" 2>&1 ||
        die "no second guest: $(cat "$work/boot")"
    at server 20 "rdma link delete siw0; /bin/ip link set eth0 down"
    # RoCE wants a network that loses nothing. Queues are long, and packets have 4096 octets of a
    # message in place of 1024: an emulated processor takes its time for each.
    local tap
    for tap in tap1 beside1; do
        "$guest" host ip link set $tap mtu 4200 txqueuelen 4000 || die "no network for RoCE"
    done
    at server 20 "/bin/ip link set eth1 mtu 4200" && at gateway 20 "/bin/ip link set eth1 mtu 4200" ||
        die "no network for RoCE"
    start_all
}

part_again() {
    [ -z "$server_guest" ] || [ "$mode" = list ] ||
        SIW_LAB_NAME=$SIW_LAB_NAME$server_guest "$guest" down 2>/dev/null
    behind=10.77.1.2 server_guest='' settings=
}

# idle FILE [FILE]: prints what gateway and server hold, and keeps it; waits until that is what
# the second file has.
idle() {
    local name
    for name in gateway ${server_guest:+server}; do
        at $name 200 "idle ${2:+"'$(cat "$2.$name")'"}" >"$1.$name"
        cat "$1.$name"
    done
}

# asks CLIENT SECONDS KEY=VALUE...: octets as the client: rddp on this host, or siw in the guest.
asks() {
    local client=$1 seconds=$2
    shift 2
    if [ "$client" = rddp ]; then
        "$guest" host timeout -s KILL "$seconds" env "LD_LIBRARY_PATH=$SIW_LAB_SHARE/verbs" RDDP_VERBS_EXTENSIONS=on \
            ${mpa:-} "$SIW_LAB_SHARE/octets" ask 10.77.0.2 $gateway_port "$@"
    else
        at gateway "$seconds" "/share/octets ask 10.77.0.2 $gateway_port $*"
    fi
}

# carries CLIENT KEY=VALUE...: all octets are right.
carries() {
    start_clock
    start_capture
    : >"$work/passive"
    asks "$1" 120 "${@:2}" >"$work/active" 2>&1
    local status=$?
    end_capture
    [ $status = 0 ] && grep -q "all octets are right" "$work/active"
}

# operations: each operation and length, of each client.
operations() {
    local ops mpa
    for ops in write send inval write,send,inval; do
        wanted "siw: $ops, 1 octet to 1 MiB" && twice carries siw "ops=$ops"
    done
    for ops in write send inval add,swap imm write,send,inval,add,swap,imm; do
        wanted "rddp: $ops, 1 octet to 1 MiB" && twice carries rddp "ops=$ops"
    done
    for mpa in RDDP_VERBS_CRC=off RDDP_VERBS_MARKERS=on RDDP_VERBS_MPA=1 RDDP_VERBS_LARGE_FPDUS=on \
        RDDP_VERBS_PEER_TO_PEER=off RDDP_VERBS_RTR=read; do
        wanted "rddp: write,send,inval,add,imm, $mpa" && twice carries rddp ops=write,send,inval,add,imm
    done
    mpa=
    wanted "rddp: solicited Sends wake a program that sleeps through others" && {
        at server 30 "kill_now server; start_server solicited=1" >"$work/passive" 2>&1
        twice carries rddp ops=send,inval,imm solicited=1
        twice carries siw ops=send,inval solicited=1
        at server 30 "kill_now server; start_server" >"$work/passive" 2>&1
    }
}

# refused CLIENT KIND CODE: the connection is lost, and the gateway has said why. siw says in the
# kernel's log which Terminate has come, octets of its control word with their halves changed.
refused() {
    local before came=
    start_clock
    start_capture
    : >"$work/passive"
    before=$(at gateway 20 "wc -l </tmp/gateway; dmesg | wc -l")
    asks "$1" 60 "wrong=$2" >"$work/active" 2>&1
    local status=$?
    end_capture
    # shellcheck disable=SC2086
    set -- "$1" "$3" $before
    at gateway 20 "tail -n +$(($3 + 1)) /tmp/gateway; dmesg | tail -n +$(($4 + 1)) | grep siw" >"$work/passive"
    [ "$1" = rddp ] || came="got TERMINATE. layer $((0x${2:3:1})), type $((0x${2:2:1})), code $((0x${2:4:2}))"
    [ $status = 4 ] && grep -q "\"terminate\":\"$2\"" "$work/passive" && grep -qF -- "$came" "$work/passive"
}

refusals() {
    local client
    for client in rddp siw; do
        wanted "$client: a Write by a wrong key is Terminate 0x1100" && twice refused $client write 0x1100
        wanted "$client: a Read by a wrong key is Terminate 0x0102" && twice refused $client read 0x0102
        wanted "$client: a Write by a key that it has invalidated is Terminate 0x1100" &&
            twice refused $client inval 0x1100
    done
    wanted "rddp: an atomic by a wrong key is Terminate 0x0102" && twice refused rddp add 0x0102
}

operations_in_short() {
    wanted "siw: write,send,inval, 1 octet to 1 MiB" && twice carries siw ops=write,send,inval
    wanted "rddp: write,send,inval,add,swap,imm, 1 octet to 1 MiB" &&
        twice carries rddp ops=write,send,inval,add,swap,imm
}

refusals_in_short() {
    wanted "siw: a Write by a wrong key is Terminate 0x1100" && twice refused siw write 0x1100
    wanted "rddp: a Read by a wrong key is Terminate 0x0102" && twice refused rddp read 0x0102
}

# from_the_device: Debian's client on rxe0, whose plain server is rddp.
from_the_device() {
    local size port=$reverse_port leave_passive
    for size in 64 4096 65000; do
        wanted "Debian's rping -c on rxe0 with rddp ping --server, $size octets" &&
            both host "$rddp ping --server --port $reverse_port --count 1" \
                guest "ulimit -l unlimited; timeout 50 rping -c -V -C 20 -S $size -p $reverse_port -a 10.77.1.2" 60
    done
}

# of_files NAME...: puts files to rddp serve, lists them, and gets them again.
of_files() {
    local file at=10.77.0.2:$files_gateway_port on_host=("$guest" host timeout 120 "$rddp")
    start_clock
    : >"$work/passive"
    for file; do
        "${on_host[@]}" put "$work/files/$file" "$at/$file" && "${on_host[@]}" get "$at/$file" "$work/back" &&
            cmp "$work/files/$file" "$work/back" || return 1
        rm "$work/back"
    done >"$work/active" 2>&1
    "${on_host[@]}" ls "$at/" >>"$work/active" 2>&1 || return 1
    for file; do
        grep -q "$file" "$work/active" || return 1
    done
}

# files: rddp serve on rxe0, by both strategies that it has for clients of a device.
files() {
    local octets strategy names=()
    for octets in 0 1 65536 8388609; do
        names+=("of-$octets")
        [ "$mode" = list ] || { mkdir -p "$work/files" && head -c $octets /dev/urandom >"$work/files/of-$octets"; }
    done
    for strategy in slots pipelined; do
        wanted "put, ls and get with rddp serve on rxe0, $strategy" || continue
        at server 30 "start_files $strategy" >"$work/passive" 2>&1
        twice of_files "${names[@]}"
        at server 30 "kill_now files" >"$work/passive" 2>&1
    done
}

# crowd: PAIRS clients, most of them this host's, which all are connected before the first goes on,
# and check their octets; nothing is left of them.
crowd() {
    local pairs=${PAIRS:-100} clients=() failures=0 number tries before during after connected
    start_clock
    : >"$work/active"
    rm -f "$work"/crowd.* "$work/go"
    at gateway 20 "rm -f /tmp/go"
    before=$(idle "$work/before")
    for ((number = 0; number < pairs; number++)); do
        for tries in 1 2 3 4 5; do
            if [ $((number % 20)) = 0 ]; then
                asks siw 300 ops=write,send most=65536 wait=/tmp/go >"$work/crowd.$number" 2>&1 &
            else
                asks rddp 300 ops=write,send most=65536 "wait=$work/go" >"$work/crowd.$number" 2>&1 &
            fi
            clients[number]=$!
            until grep -qs . "$work/crowd.$number"; do sleep 0.05; done
            # The gateway gives a leg three seconds, of an emulated processor.
            grep -q "took too long" "$work/crowd.$number" || break
            wait "${clients[number]}"
        done
    done
    connected=$(grep -l connected "$work"/crowd.* | wc -l)
    during=$(idle "$work/during")
    at gateway 20 "touch /tmp/go"
    : >"$work/go"
    for number in "${!clients[@]}"; do
        wait "${clients[$number]}" || failures=$((failures + 1))
    done
    tail -qn 1 "$work"/crowd.* | sort | uniq -c >"$work/active"
    after=$(idle "$work/after" "$work/before")
    printf '%s\n' "$before" "with $connected connections: $during" "$after" >"$work/passive"
    [ "$connected" = "$pairs" ] && [ $failures = 0 ] && [ "$before" = "$after" ]
}

crowds() {
    wanted "${PAIRS:-100} pairs at once" && twice crowd && sed 's/^/      /' "$work/passive"
}

# kill_one VICTIM: kills one of the three under a client that goes on until its connection is lost.
# What was not killed notices that, holds nothing of the connection, and serves the next.
kill_one() {
    local victim=$1 client='' pause tries=0
    : >"$work/active"
    until grep -q connected "$work/active"; do
        # The gateway gives a leg three seconds, of an emulated processor.
        [ -n "$client" ] && kill -0 $client 2>/dev/null || {
            [ -z "$client" ] || grep -q "took too long" "$work/active" || return 1
            tries=$((tries + 1))
            [ $tries -le 5 ] || return 1
            asks rddp 60 ops=write,send,inval,add rounds=0 >"$work/active" 2>&1 &
            client=$!
        }
        sleep 0.05
    done
    pause=0.$((RANDOM % 10))$((RANDOM % 10))
    if [ "$victim" = client ]; then
        sleep $pause
        # The client is a child of nsenter and timeout, which hand on no KILL.
        pkill_child $client
    else
        at "$victim" 30 "sleep $pause; kill_now $victim; start_$victim" >>"$work/passive" 2>&1 || return 1
    fi
    wait $client
    local status=$?
    echo "$victim after $pause s: status $status, $(tail -n 1 "$work/active")" >>"$work/killed"
    # 4: lost; 137: killed.
    case $victim:$status in
    client:137 | gateway:4 | server:4) ;;
    *) return 1 ;;
    esac
}

# pkill_child PROCESS: kills octets below a process that this script started.
pkill_child() {
    local child
    for child in $(pgrep -P "$1"); do
        pkill_child "$child"
        kill -KILL "$child" 2>/dev/null
    done
    kill -KILL "$1" 2>/dev/null
}

# killed VICTIM TIMES
killed() {
    local time before after
    start_clock
    : >"$work/passive"
    : >"$work/killed"
    before=$(idle "$work/before")
    for ((time = 0; time < $2; time++)); do
        kill_one "$1" || { echo "kill $time failed, behind:" && tail -n 2 "$work/killed"; return 1; } >>"$work/passive"
    done
    after=$(idle "$work/after" "$work/before")
    printf '%s\n%s\n' "$before" "$after" >>"$work/passive"
    [ "$before" = "$after" ] && carries rddp ops=write,send
}

kills() {
    local victim
    for victim in client gateway server; do
        wanted "the $victim is killed ${KILLS:-5} times" && twice killed $victim "${KILLS:-5}"
    done
}

# stopped: SIGTERM while a client is at work.
stopped() {
    start_clock
    : >"$work/passive"
    : >"$work/active"
    asks rddp 60 ops=write,send rounds=0 >"$work/active" 2>&1 &
    local client=$! status
    until grep -q connected "$work/active"; do
        kill -0 $client 2>/dev/null || return 1
        sleep 0.05
    done
    at gateway 30 "kill \$(cat /tmp/gateway.pid); status" >"$work/passive" 2>&1
    wait $client
    status=$?
    at gateway 30 start_gateway
    [ $status = 4 ] && grep -q "the gateway stops" "$work/passive" && grep -q "status 0" "$work/passive"
}

ends() {
    wanted "SIGTERM ends the connections, and the gateway with status 0" && twice stopped
    [ "$mode" = list ] || { at server 30 "kill_now server" && at gateway 30 "kill \$(cat /tmp/gateway.pid); status"; } >/dev/null
    nothing_leaked
}

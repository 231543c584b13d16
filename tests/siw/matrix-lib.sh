# Functions by which the matrix runs a case. Read by ./matrix and ../device/run with ".", not run.
# shellcheck shell=bash disable=SC2034,SC2154

passed=0 failed=0 again=0 number=0 port=7200
failures=() # the lines of the cases that failed
work=$(mktemp -d)

take_down() {
    [ -z "${SIW_LAB_NAME:-}" ] || "$guest" down 2>/dev/null
    rm -rf "$work"
}
trap take_down EXIT
trap 'exit 130' INT TERM

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# options WORD...: what the command is asked to do; its first lines say what there is.
options() {
    mode=run only=. inside='' capture='' given=("$@")
    while [ $# -gt 0 ]; do
        case $1 in
        --list) mode=list ;;
        --only) only=${2:?--only needs a pattern} && shift ;;
        --inside) inside=1 ;;
        --capture) capture=${2:?--capture needs a folder} && shift ;;
        *)
            sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
            exit 2
            ;;
        esac
        shift
    done
}

# prepare: what all kernels share. The host's programs have to be there already.
prepare() {
    local program
    mkdir -p "$SIW_LAB_SHARE"
    exec 8>"$SIW_LAB_SHARE/lock"
    flock 8 # another matrix may be about to build the same
    make -s -C "$here" BUILD="$SIW_LAB_SHARE" || die "verbs-peer does not build"
    for program in "$rddp" "$peer"; do
        [ -n "$inside" ] || [ -x "$program" ] || die "no $program: cargo build --release first"
    done
    [ -n "$inside" ] || make -s -C "$here" BUILD="$SIW_LAB_SHARE" LIBRARY="$library" raw || die "raw-peer does not build"
    mkdir -p "$verbs_folder" && for program in libibverbs.so.1 librdmacm.so.1; do
        ln -sfn "$(realpath "$library")/librddp_verbs.so" "$verbs_folder/$program"
    done
    exec 8>&-
    prepare_lab
}

# prepare_lab: what all commands need that run cases in the lab.
prepare_lab() {
    local kernel
    [ -z "$capture" ] || mkdir -p "$capture" || die "cannot make $capture"
    for kernel in $kernels; do
        SIW_LAB_KERNEL=$kernel "$lab/setup.sh" >"$work/setup" 2>&1 ||
            die "the lab's setup for $kernel failed: $(tail -n 5 "$work/setup")"
    done
}

# boot SETTINGS: with siw as Debian has it, or, when there are settings, with the one that takes
# them. An emulated kernel on a busy machine may panic while it patches its own code (int3), so a
# guest that does not come up gets another try.
boot() {
    [ "$mode" = list ] && return
    export SIW_LAB_SIW=$1
    "$guest" up >"$work/boot" 2>&1 || {
        echo "again boot $kernel: $(tail -n 1 "$work/boot")"
        "$guest" up >"$work/boot" 2>&1
    } || die "no guest: $(cat "$work/boot")"
    resources=$(guest_resources)
}

halt() {
    [ "$mode" = list ] || "$guest" down
}

in_guest() { timeout "$1" "$guest" run "$2"; }

# with SETTINGS: sets settings of the tunable siw, for the cases that follow.
with() {
    settings=$*
    [ "$mode" = list ] && return
    local setting commands=
    for setting in $settings; do
        commands+="echo ${setting#*=} >/sys/module/siw/parameters/${setting%=*};"
    done
    in_guest 20 "$commands" || die "siw does not take $settings"
}

# wanted LINE: returns whether this case is to be run; counts it, and lists it if that is asked for.
wanted() {
    line="$kernel ${settings:+$settings }$1"
    number=$((number + 1)) port=$((port + 1))
    grep -qE -- "$only" <<<"$line" || return 1
    [ "$mode" = list ] || return 0
    echo "$line"
    return 1
}

# verdict STATUS FILE...: prints how the case of that line went; on failure what was said, too.
verdict() {
    local status=$1 file
    shift
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %s (%s s)\n' "$line" "$(elapsed)"
        return
    fi
    failed=$((failed + 1))
    failures+=("$line")
    printf 'FAIL  %s (%s s)\n' "$line" "$(elapsed)"
    for file; do
        echo "      ${file##*/}:"
        tail -n 25 "$file" | cut -c1-400 | sed 's/^/          /'
    done
}

start_clock() { began=${EPOCHREALTIME/./}; }
elapsed() {
    local tenths=$(((${EPOCHREALTIME/./} - began) / 100000))
    echo "$((tenths / 10)).$((tenths % 10))"
}

start_capture() {
    [ -n "$capture" ] || return
    "$guest" host dumpcap -q -i tap0 -w "$capture/$number.pcapng" >/dev/null 2>&1 &
    capturing=$!
    sleep 0.5
}

end_capture() {
    [ -n "$capture" ] || return
    sleep 0.3
    kill -INT "$capturing"
    wait "$capturing"
}

# on END SECONDS COMMAND: runs a command on the host, or in the guest.
on() {
    if [ "$1" = guest ]; then
        in_guest "$2" "$3"
    else
        # shellcheck disable=SC2086
        "$guest" host timeout "$2" $3
    fi
}

# until_listening FILE PROCESS: waits until the passive end says so, or for as many tenths of a
# second as patience= says; where listens_on= names an end, until it has the port.
until_listening() {
    local tenth
    for ((tenth = 0; tenth < ${patience:-150}; tenth++)); do
        grep -Eq '(^|Z )(listening|serving)' "$1" && return
        [ -z "${listens_on:-}" ] || [ -z "$(on "$listens_on" 5 "ss -tlnH sport = :$port")" ] || return
        kill -0 "$2" 2>/dev/null || return
        sleep 0.1
    done
}

# both PASSIVE COMMAND ACTIVE COMMAND SECONDS: runs both ends (host or guest), each in its file of
# output; says= is what the active one has to have said.
both() { twice play "$@"; }

# twice FUNCTION WORDS...: plays a case. One that fails is played once more, which is said: an
# emulated guest on a busy machine may miss a time limit, a fault of ours stays.
twice() {
    if "$@"; then
        verdict 0
        return
    fi
    printf 'again %s (%s s)\n' "$line" "$(elapsed)"
    for file in passive active; do
        tail -n 8 "$work/$file" | cut -c1-300 | sed 's/^/          /'
    done
    again=$((again + 1))
    boot_after_bug
    if "$@"; then
        verdict 0
    else
        verdict 1 "$work/passive" "$work/active"
        boot_after_bug
    fi
}

# boot_after_bug: a kernel that has met a BUG of its own no longer ends its programs.
boot_after_bug() {
    local bug
    bug=$(in_guest 20 "dmesg | grep -m 1 'kernel BUG at'") || return
    echo "again boot $kernel: $bug"
    "$guest" down
    boot "$SIW_LAB_SIW"
    # shellcheck disable=SC2086
    [[ ${settings:-} != *=* ]] || with $settings
}

play() {
    local passive passive_status=0 active_status=0
    start_clock
    start_capture
    : >"$work/passive" # or the previous case's "listening" would be read
    on "$1" "$5" "$2" >"$work/passive" 2>&1 &
    passive=$!
    until_listening "$work/passive" "$passive"
    on "$3" "$5" "$4" >"$work/active" 2>&1 || active_status=$?
    # That process is a shell, which ends when what it runs does.
    [ -z "${leave_passive:-}" ] || pkill -P "$passive"
    wait "$passive" || passive_status=$?
    end_capture
    [ -z "${leave_passive:-}" ] || passive_status=0
    # A program may say nothing where nothing is asked of it.
    [ $((active_status + passive_status)) = 0 ] && { [ -z "${says:-}" ] || grep -qF -- "$says" "$work/active"; }
}

# pair HOST_ROLE SCENARIO_AND_KEYS [KEYS_OF_THE_HOST]: one scenario. seconds= and
# address= may be set before.
pair() {
    local role=$1 scenario=$2 keys=${3:-} host=host
    wanted "host $role: $scenario${keys:+ [$keys]}" || return
    local host_program=$peer verbs_peer=/share/verbs-peer
    [ -z "$inside" ] || host=guest host_program=$verbs_peer
    [[ -n $inside || $scenario != fault* ]] || keys+=" order=rfc"
    if [ "$role" = active ]; then
        both guest "$verbs_peer passive ${guest_address:-10.77.0.2} $port $scenario $keys" \
            $host "$host_program active ${guest_address:-10.77.0.2} $port $scenario $keys" "${seconds:-60}"
    else
        local listen=${host_address:-10.77.0.1}
        [ -z "$inside" ] || listen=${guest_address:-10.77.0.2}
        both $host "$host_program passive $listen $port $scenario $keys" \
            guest "$verbs_peer active $listen $port $scenario $keys" "${seconds:-60}"
    fi
}

# ping HOST_ROLE COUNT SIZE: `rddp ping` against rping.
ping() {
    local role=$1 count=$2 size=$3 patience=10 # rping does not say when it listens
    wanted "host $role: rping, $count times $size octets" || return
    local server="rping -s -v -C $count -S $size -p $port -a" client="rping -c -V -v -C $count -S $size -p $port -a"
    if [ -n "$inside" ]; then
        both guest "$server 10.77.0.2" guest "$client 10.77.0.2" 40
    elif [ "$role" = active ]; then
        both guest "$server 10.77.0.2" host "$rddp ping 10.77.0.2 --port $port --count $count --size $size" 40
    else
        both host "$rddp ping --server --port $port --count 1" guest "$client 10.77.0.1" 40
    fi
}

# needs_host: for cases that need what siw cannot do, and so cannot be played inside.
needs_host() { [ -z "$inside" ]; }

# guest_resources: what devices hold, and TCP besides the lab's own; the same before and after if
# nothing leaks.
guest_resources() {
    in_guest 20 "rdma resource show; ss -tanH | grep -v -e TIME-WAIT -e ':7100 ' | sort"
}

nothing_leaked() {
    wanted "nothing is left in the guest" || return
    local tenth
    start_clock
    for ((tenth = 0; tenth < 100; tenth++)); do
        guest_resources >"$work/resources"
        [ "$(cat "$work/resources")" = "$resources" ] && break
        sleep 0.3
    done
    [ "$(cat "$work/resources")" = "$resources" ]
    verdict $? "$work/resources"
}

kernel_is_well() {
    wanted "the guest's kernel does not complain" || return
    start_clock
    in_guest 20 "dmesg | grep -E 'WARNING:|BUG:|Oops|refcount_t|Call Trace'" >"$work/complaints"
    [ ! -s "$work/complaints" ]
    verdict $? "$work/complaints"
}

# mtu OCTETS: of both ends of the network that siw is on.
mtu() {
    [ "$mode" = list ] && return
    "$guest" host ip link set tap0 mtu "$1" || die "cannot set the host's MTU to $1"
    in_guest 20 "/bin/ip link set eth0 mtu $1" || die "cannot set the guest's MTU to $1"
}

# in_a_fresh_guest: plays the cases that failed once more, a kernel booted anew for them. What is
# wrong with us fails there too; a guest that stood still for a while is over.
in_a_fresh_guest() {
    [ "$failed" != 0 ] && [ "$failed" -le 40 ] && [ "${MATRIX_LAST:-}" = "" ] || return 0
    local pattern
    pattern=$(printf '%s\n' "${failures[@]}" | sed 's/[][\.*^$+?(){}|]/\\&/g; s/.*/^&$/' | paste -sd '|')
    echo "those that failed, in a fresh guest (load: $(cut -d' ' -f1-3 /proc/loadavg)):"
    printf '      %s\n' "${failures[@]}"
    MATRIX_LAST=1 "$0" "${given[@]}" --only "$pattern" || return 0
    passed=$((passed + failed)) failed=0
}

summary() {
    echo "cases that passed or failed only when played again: $again"
    in_a_fresh_guest
    [ "$failed" = 0 ] || printf 'failed: %s\n' "${failures[@]}"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] || exit 1
}

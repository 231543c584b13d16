# The functions of a case. Read by ./one with ".", not run.
#
# A case finds: $way (plain, ddp, both, sdp, tcp), $folder (its own, which is the current one),
# $DATA (random files: 1, 1000, 100K, 1M, large), $QUICK.
# shellcheck shell=bash disable=SC2154

case $way in
plain) under=() client_under=() ;;
*)
    thresholds=()
    [ -z "${THRESHOLD:-}" ] || thresholds=(--zcopy-threshold "$THRESHOLD" --zcopy-sink-threshold "$THRESHOLD")
    switched=(run "--$way" "${thresholds[@]}" --)
    # With `./run --other` one of them is the command of another build.
    under=("$SERVERS" "${switched[@]}") client_under=("$CLIENTS" "${switched[@]}")
    ;;
esac
# With `./run --apart` the memory that processes of a host share is each program's own.
apart=()
[ -z "${APART:-}" ] || apart=(unshare --mount sh -c 'mount -t tmpfs apart /dev/shm && exec "$@"' sh)
# The variables of `rddp run`, for programs that clean the environment of those that they start.
passed=(LD_PRELOAD RDDP_FAMILY RDDP_POLICY RDDP_SDP_SOURCE_THRESHOLD RDDP_SDP_SINK_THRESHOLD)
clients=$here/clients
declare -A started=()
address=127.0.0.1

# note TEXT: writes a line of results, which must be the same both ways.
note() { echo "$*" >>"$folder/results"; }

# fault TEXT: fails the case, whatever the result of the other way.
fault() { note "FAULT $*"; }

# start NAME COMMAND...: starts a server, in a session of its own, so that all of its processes can
# be ended. input= may be set before.
start() {
    local name=$1
    shift
    setsid "${apart[@]}" "${before[@]}" "${under[@]}" "$@" >"$folder/$name.log" 2>"$folder/$name.err" <"${input:-/dev/null}" &
    started[$name]=$!
}
# A command that `start` and `client` run theirs by, such as setpriv.
before=()

# stop NAME [SIGNAL]: ends a server and notes how it went.
stop() {
    local pid=${started[$1]} tenth
    unset "started[$1]"
    kill "-${2:-TERM}" "$pid" 2>/dev/null
    for ((tenth = 0; tenth < 100; tenth++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -0 "$pid" 2>/dev/null && fault "$1 goes on after a signal"
    kill -KILL -- "-$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    note "$1: ended with $?"
}

# ended NAME: waits until a server has ended by itself, and notes how.
ended() {
    local pid=${started[$1]} tenth
    unset "started[$1]"
    for ((tenth = 0; tenth < 300; tenth++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null
    wait "$pid"
    note "$1: ended with $?"
}

end_all() {
    local pid
    for pid in "${started[@]}" ${capturing:-}; do
        kill -KILL -- "-$pid" 2>/dev/null
    done
}

# client NAME COMMAND...: runs a client to its end; its output is in NAME.out and NAME.err, its exit
# code is noted.
client() {
    local name=$1 status
    shift
    timeout -k 5 "$((LIMIT / 2))" "${apart[@]}" "${before[@]}" "${client_under[@]}" "$@" >"$folder/$name.out" 2>"$folder/$name.err"
    status=$?
    note "$name: exit $status"
    return $status
}

# needs COMMAND=PACKAGE...: checks that these commands are there; a case that is skipped says so.
# `needs ... || return 0`.
needs() {
    local one missing=()
    for one; do
        command -v "${one%%=*}" >/dev/null || missing+=("${one#*=}")
    done
    [ ${#missing[@]} != 0 ] || return 0
    note "not tried"
    echo "NOT TRIED: apt-get install --no-install-recommends ${missing[*]}" >>"$folder/remarks"
    return 1
}

# gone PID: waits until a process has ended that is no server of `start`'s, or not to be noted.
gone() {
    local tenth
    for ((tenth = 0; tenth < 300; tenth++)); do
        { read -r _ _ state _ <"/proc/$1/stat"; } 2>/dev/null && [ "$state" != Z ] || return 0
        sleep 0.1
    done
    fault "$1 goes on after a signal"
}

# another FILE PID: waits until this file has the number of another process, and prints it.
another() {
    local tenth number
    for ((tenth = 0; tenth < 300; tenth++)); do
        number=$({ tr -dc 0-9 <"$1"; } 2>/dev/null)
        [ -n "$number" ] && [ "$number" != "$2" ] && echo "$number" && return
        sleep 0.1
    done
    fault "$1 stays $2"
    return 1
}

# fetch NAME URL: gets all files of $DATA from there, over a connection each.
fetch() {
    local file
    for file in 1 1000 100K 1M large; do
        client "$1-$file" curl -sSf "$2/$file"
        content "$1-$file" "$1-$file.out"
    done
}

# content NAME FILE...: notes the length and the hash of the contents of these files together.
content() {
    local name=$1
    shift
    note "$name: $(cat "$@" | wc -c) octets, $(cat "$@" | sha256sum | cut -c1-16)"
}

# tree NAME FOLDER: notes the length and the hash of all files in it, with their names and modes.
tree() { note "$1: $(cd "$2" && find . -type f -printf '%m %p\n' -exec sha256sum {} + | sort | sha256sum | cut -c1-16)"; }

# port VARIABLE: sets it to the number of a port that is free, below those that the kernel hands
# out.
port() {
    local number
    while number=$((20000 + RANDOM % 12000)); do
        grep -qi ":$(printf %04X "$number") " /proc/net/tcp /proc/net/tcp6 || break
    done
    echo "$number" >>"$folder/ports"
    printf -v "$1" %s "$number"
}

# listening PORT NAME: waits until the server of that name does; without a connection, which a
# server might count.
listening() {
    local tenth line
    line=":$(printf %04X "$1") 0+:0000 0A"
    for ((tenth = 0; tenth < 300; tenth++)); do
        grep -qEi "$line" /proc/net/tcp /proc/net/tcp6 && return
        kill -0 "${started[$2]}" 2>/dev/null || break
        sleep 0.1
    done
    fault "$2 does not listen"
    return 1
}

# framed: from here on each connection to a port of this case has to begin with MPA's startup
# frames.
framed() {
    [[ $way = ddp || $way = both || $way = sdp ]] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v dumpcap >/dev/null; then
        echo "not captured: that needs root, and dumpcap" >>"$folder/remarks"
        return 0
    fi
    local mpa=0x4d504120
    local ip4="tcp[13] & 0x12 = 2 or tcp[((tcp[12] & 0xf0) >> 2):4] = $mpa"
    local ip6="ip6[53] & 0x12 = 2 or ip6[(40 + ((ip6[52] & 0xf0) >> 2)):4] = $mpa"
    setsid dumpcap -q -i lo -s 256 -f "(ip proto \\tcp and ($ip4)) or (ip6 proto \\tcp and ($ip6))" -w "$folder/start.pcapng" >"$folder/dumpcap" 2>&1 &
    capturing=$!
    local tenth
    for ((tenth = 0; tenth < 50; tenth++)); do
        [ -s "$folder/start.pcapng" ] && return
        sleep 0.1
    done
    fault "dumpcap does not start"
}

# was_framed PORT: ends what `framed` began, and has a client without rddp try that port, which must
# be refused.
was_framed() {
    if [ -n "${capturing:-}" ]; then
        sleep 0.3
        kill -INT "$capturing"
        wait "$capturing"
        capturing=''
        "$here/framed.py" "$folder/start.pcapng" "$folder/ports" "$way" "${MARKERS:-}" >>"$folder/remarks" 2>"$folder/framed.err" ||
            fault "not framed: $(cat "$folder/framed.err")"
    fi
    [[ $way = ddp || $way = sdp ]] || return 0
    timeout 20 python3 "$clients/outsider.py" "$address" "$1" >"$folder/outsider.out" 2>&1 ||
        fault "somebody without rddp: $(tail -n 1 "$folder/outsider.out")"
}

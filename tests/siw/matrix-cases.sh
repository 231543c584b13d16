# The matrix's cases. Read by ./matrix with ".", not run.
# shellcheck shell=bash disable=SC2016,SC2034,SC2154

all_ops=send,send-se,send-inv,send-se-inv,write,read
roles="active passive"

# plain_cases: siw as Debian's source has it.
plain_cases() {
    settings=
    operations
    connection_variants
    private_data
    faults
    files
    path_variants
    pings
    port_mapper
    raw_sockets
    verbs_library
    large_fpdus
    many_connections
    nothing_leaked
    nvme_hosts
    nvme_target
    kernel_is_well
}

# settings_cases: siw whose constants are parameters.
settings_cases() {
    crc_settings
    peer_to_peer_settings
    revision_one_settings
    large_fpdus
    with mpa_version=2 mpa_crc_required=0 mpa_crc_strict=0 peer_to_peer=0
    nothing_leaked
    kernel_is_well
}

operations() {
    local role by op
    for role in $roles; do
        for by in $roles; do
            pair "$role" "transfer ops=$all_ops size=0 by=$by"
            pair "$role" "transfer ops=$all_ops size=1 count=3 by=$by"
            for op in send write read; do
                pair "$role" "transfer ops=$op size=1048576 count=3 by=$by"
                pair "$role" "transfer ops=$op size=8388608 count=2 by=$by"
            done
            pair "$role" "transfer ops=read size=70000 count=16 reads=1 by=$by"
        done
        pair "$role" "transfer ops=$all_ops size=12345 count=20 by=both"
        pair "$role" "transfer ops=write,read,send size=1048576 count=3 reads=8 by=both"
        # Long Responses, with Sends between their segments.
        pair "$role" "transfer ops=read,send size=8388608 count=4 reads=4 by=both"
        # Two siw that wait for each other's Responses wait for ever: SCENARIOS.md.
        needs_host && pair "$role" "transfer ops=read size=70000 count=16 reads=1 by=both"
    done
}

connection_variants() {
    local role close how
    for role in $roles; do
        for close in $roles; do
            for how in graceful abort; do
                pair "$role" "transfer ops=$all_ops size=1000 close=$close how=$how"
            done
        done
        pair "$role" "transfer ops=$all_ops size=30000 count=4 by=both" "crc=off"
        pair "$role" "transfer ops=send,write size=1000 reads=0"
    done
    needs_host || return
    for keys in "crc=on p2p=off" "crc=off p2p=off" "rtr=read" "rtr=write"; do
        pair active "transfer ops=$all_ops size=30000 count=2" "$keys"
    done
    for keys in "crc=on" "crc=off"; do
        pair active "transfer ops=$all_ops size=30000 count=4 by=both revision=1" "$keys"
    done
    refused active "markers=on"
    refused passive "markers=on"
}

# refused HOST_ROLE KEYS: no connection comes of it. A passive siw refuses without asking its user,
# who is ended here.
refused() {
    local leave_passive=
    [ "$1" = passive ] || leave_passive=1
    pair "$1" refused "$2"
}

# siw can send 251 octets of private data, and receive 252.
private_data() {
    local host_sends=252
    needs_host || host_sends=251
    pair active "transfer connections=253 private=grow request=$host_sends reply=251"
    pair passive "transfer connections=253 private=grow request=251 reply=$host_sends"
    pair active "reject connections=252 private=grow request=7 reply=251"
    pair passive "reject connections=253 private=grow request=7 reply=$host_sends"
}

# fault_table: kind, what rddp answers, what siw answers, as SCENARIOS.md has them.
fault_table() {
    sed -nE 's/^\| `([a-z-]+)` \|.*\| (0x[0-9A-F]{4})[^|]*\| ([^|]*) \|$/\1 \2 \3/p' "$here/SCENARIOS.md"
}

# terminate_code KIND HOST_ROLE DOER OURS SIWS: of the end that is wronged; with
# local-error, of the doer.
terminate_code() {
    local host_answers=''
    [ "$2" = "$3" ] || host_answers=1
    [ "$1" != local-error ] || { [ "$2" = "$3" ] && host_answers=1 || host_answers=; }
    [ -z "$inside" ] || host_answers=
    [ -n "$host_answers" ] && echo "$4" || echo "$5"
}

faults() {
    local kind ours siws role by code
    while read -r kind ours siws _; do
        for role in $roles; do
            for by in $roles; do
                code=$(terminate_code "$kind" "$role" "$by" "$ours" "$siws")
                # siw is not asked what it does not check.
                [[ $code != 0x* ]] || pair "$role" "fault kind=$kind by=$by terminate=$code" </dev/null
            done
        done
    done < <(fault_table)
    needs_host && pair passive "fault kind=send-too-long by=active size=1048576 terminate=0x1205"
}

# What siw Reads is a region over a file: all of it, and one that is cut short meanwhile.
files() {
    needs_host || return
    local role by mib=${FILE_MIB:-64} seconds
    seconds=$((60 + mib))
    for role in $roles; do
        by=active
        [ "$role" = passive ] || by=passive
        pair "$role" "transfer ops=read size=$((mib << 16)) count=16 by=$by timeout=$((20 + mib / 4))" "source=file"
        pair "$role" "fault kind=read-truncated by=$by ops=read size=67108864 terminate=0x0101" "source=file"
    done
}

path_variants() {
    local role octets guest_address host_address
    for octets in 9000 1280; do
        mtu "$octets"
        for role in $roles; do
            pair "$role" "transfer ops=$all_ops size=300000 count=2 by=both seed=$octets"
        done
    done
    mtu 1500
    guest_address=fd77::2 host_address=fd77::1
    for role in $roles; do
        pair "$role" "transfer ops=$all_ops size=12345 count=5 by=both seed=6"
    done
}

pings() {
    local role
    for role in $roles; do
        ping "$role" 10 64
        ping "$role" 100 4096
        ping "$role" 3 65000
    done
}

# A real port mapper beside siw. It knows the ports on which siw listens, but under the same
# numbers: it binds those that it gives out itself, and siw, on the kernel's TCP, could not.
port_mapper() {
    needs_host || return
    [ "$mode" = list ] || in_guest 20 iwpmd || die "the guest's iwpmd does not start"
    pair active "transfer ops=$all_ops size=1000 by=both" "mapper=on"
    says="the port mapper has named a port" RUST_LOG=debug ping active 3 64
    # Nobody listens there: a doctor that comes and goes again has rping and the kernel's iw_cm wait
    # for each other for ever.
    wanted "the port mapper knows no other ports" && {
        start_clock
        "$guest" host timeout 30 "$rddp" doctor 10.77.0.2 >"$work/active" 2>&1
        grep -qF "knows of no service at port 7174" "$work/active"
        verdict $? "$work/active"
    }
    [ "$mode" = list ] || in_guest 20 "killall iwpmd"
}

# The host's end is a C program on the raw mode of extended sockets.
raw_sockets() {
    needs_host || return
    local role by settings="raw sockets" peer=$raw_peer
    for role in $roles; do
        for by in $roles; do
            pair "$role" "transfer ops=$all_ops size=0 by=$by"
            pair "$role" "transfer ops=$all_ops size=1048576 count=2 by=$by"
        done
        pair "$role" "transfer ops=$all_ops size=12345 count=20 by=both"
        for by in $roles; do
            pair "$role" "transfer ops=$all_ops size=1000 close=$by connections=5"
        done
        pair "$role" "transfer ops=$all_ops size=1000 close=$role how=abort"
        pair "$role" "reject connections=252 private=grow request=7 reply=251"
        # Where either stack answers the same.
        for by in $roles; do
            pair "$role" "fault kind=write-unknown by=$by terminate=0x1100"
            pair "$role" "fault kind=write-bounds by=$by terminate=0x1101"
            pair "$role" "fault kind=read-unknown by=$by terminate=0x0100"
            pair "$role" "fault kind=read-before by=$by terminate=0x0101"
            pair "$role" "fault kind=send-no-receive by=$by terminate=0x1202"
        done
    done
}

many_connections() {
    local role seconds=180
    for role in $roles; do
        pair "$role" "transfer connections=1000"
        nothing_leaked
    done
}

# FPDUs longer than a segment, by siw's bit of the startup frames: siw as it is echoes it, and sets
# it with try_gso alone. Then it sends such FPDUs, too.
large_fpdus() {
    local asks=asked
    needs_host || return
    if [ -n "$settings" ]; then
        with mpa_crc_required=0 mpa_crc_strict=0 peer_to_peer=0 mpa_version=2 try_gso=1
        asks=agreed
    fi
    pair active "transfer ops=write,send,read size=200000 count=3 by=both" "large=agreed"
    pair passive "transfer ops=write,send,read size=200000 count=3 by=both" "large=$asks"
    [ -z "$settings" ] || {
        pair active "transfer ops=write,send,read size=200000 count=3 by=both" "large=agreed crc=off"
        pair passive "transfer ops=write,send,read size=200000 count=3 by=both" "large=off"
        with mpa_crc_required=0 mpa_crc_strict=0 peer_to_peer=0 mpa_version=2 try_gso=0
    }
}

# Who asks for CRC: siw and the host, either, neither. (Not with siw as it is: the cases above.)
crc_settings() {
    local role keys
    with mpa_crc_required=1 mpa_crc_strict=0 peer_to_peer=0 mpa_version=2
    for role in $roles; do
        for keys in crc=on crc=off; do
            pair "$role" "transfer ops=$all_ops size=30000 count=4 by=both" "$keys"
        done
    done
    needs_host || return
    with mpa_crc_required=0 mpa_crc_strict=1
    refused active "crc=on"
    refused passive "crc=on"
    for role in $roles; do
        pair "$role" "transfer ops=$all_ops size=30000 count=4" "crc=off"
    done
}

peer_to_peer_settings() {
    local keys
    with mpa_crc_required=0 mpa_crc_strict=0 peer_to_peer=1 mpa_version=2
    for keys in "crc=on" "crc=off" "rtr=read" "rtr=write"; do
        pair passive "transfer ops=$all_ops size=30000 count=4 by=both" "$keys"
    done
    pair active "transfer ops=$all_ops size=30000 count=4 by=both"
    pair passive "fault kind=write-bounds by=active terminate=0x1101"
    ping passive 10 64
    needs_host && refused passive "rtr=send"
}

revision_one_settings() {
    local keys
    with mpa_crc_required=0 mpa_crc_strict=0 peer_to_peer=0 mpa_version=1
    for keys in crc=on crc=off; do
        pair passive "transfer ops=$all_ops size=30000 count=4 by=both revision=1" "$keys"
    done
    pair passive "transfer connections=256 private=grow request=255 reply=255 revision=1"
    pair passive "reject connections=10 private=grow request=7 reply=9 revision=1"
    pair passive "fault kind=read-bounds by=active terminate=0x0101 revision=1"
    with mpa_crc_required=1
    for keys in crc=on crc=off; do
        pair passive "transfer ops=$all_ops size=30000 count=4 by=both revision=1" "$keys"
    done
}

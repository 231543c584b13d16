# The guests of ./lab: the gateway, and the programs behind it, in one guest or two. Read with ".",
# by busybox. behind is the address of the programs.
# shellcheck shell=dash disable=SC2154

ulimit -l unlimited

# The program's port at rxe0, and that of the gateway.
server_port=7471
gateway_port=7472
# Programs behind the device come to the gateway here, and go on to rddp ping on the host.
reverse_port=7473
# rddp serve, and the gateway's port for it.
files_port=7474
files_gateway_port=7475

# until_says FILE WORD: waits until a program has said that it listens.
until_says() {
    local tenth=0
    until grep -q "$2" "$1" 2>/dev/null; do
        tenth=$((tenth + 1))
        [ $tenth -lt 100 ] || { cat "$1"; return 1; }
        sleep 0.1
    done
}

start_server() {
    : >/tmp/server
    /share/octets serve $behind $server_port ${1:-} >/tmp/server 2>&1 &
    echo $! >/tmp/server.pid
    until_says /tmp/server listening
}

start_gateway() {
    : >/tmp/gateway
    rm -f /tmp/gateway.status
    (
        /share/rddp gateway --listen 10.77.0.2:$gateway_port --to rxe0/$behind:$server_port \
            --listen 10.77.0.2:$files_gateway_port --to rxe0/$behind:$files_port \
            --listen rxe0/10.77.1.2:$reverse_port --to 10.77.0.1:$reverse_port --json &
        echo $! >/tmp/gateway.pid
        wait $!
        echo $? >/tmp/gateway.status
    ) >/tmp/gateway 2>&1 &
    until_says /tmp/gateway '"device":"rxe0"'
}

# start_files STRATEGY
start_files() {
    : >/tmp/files
    mkdir -p /tmp/served
    /share/rddp serve /tmp/served --device rxe0 --bind "$behind" --port $files_port --writable \
        --strategy "$1" >/tmp/files 2>&1 &
    echo $! >/tmp/files.pid
    until_says /tmp/files listening
}

# kill_now NAME: kills the program, and waits until it is gone.
kill_now() {
    local pid
    pid=$(cat "/tmp/$1.pid")
    kill -9 "$pid"
    while [ -e "/proc/$pid" ]; do sleep 0.05; done
    rm "/tmp/$1.pid"
}

# status: waits until the gateway has ended, and prints what it has said last, and its status.
status() {
    local tenth=0
    until [ -s /tmp/gateway.status ]; do
        tenth=$((tenth + 1))
        [ $tenth -lt 150 ] || { echo "the gateway goes on"; return 1; }
        sleep 0.1
    done
    tail -n 3 /tmp/gateway
    echo "status $(cat /tmp/gateway.status)"
}

# idle [HELD]: prints what gateway and server hold, as far as they are in this guest: descriptors,
# and objects of devices. Where it is said what that has to be, waits until it is, for as long as
# Linux's connection manager tells a silent peer of an end: 16 times, 4 to 5 seconds apart.
idle() {
    local tenth=0 held
    while :; do
        held=$(rdma resource show | grep rxe0; for name in gateway server; do
            [ ! -e /tmp/$name.pid ] || echo "$name: $(ls "/proc/$(cat /tmp/$name.pid)/fd" | wc -l)"
        done)
        tenth=$((tenth + 1))
        [ -n "${1:-}" ] && [ "$held" != "$1" ] && [ $tenth -lt 800 ] || break
        sleep 0.1
    done
    echo "$held"
}

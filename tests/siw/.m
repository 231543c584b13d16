#!/bin/bash
# rddp against the kernel's siw: every scenario of SCENARIOS.md, each way, on each of the lab's kernels.
#
#   ./matrix                   everything; a line for each case, a summary, exit status 1 if any failed
#   ./matrix --list            the cases, without running them
#   ./matrix --only PATTERN    those whose line has this (an extended regular expression)
#   ./matrix --inside          both ends are verbs-peer and rping on siw: is the matrix itself all right?
#   ./matrix --capture FOLDER  also keeps FOLDER/NUMBER.pcapng of each case (needs dumpcap)
#
# KERNELS     of the lab (default "6.1 6.12")
# RDDP, PEER  the host's programs (default target/release/rddp and target/release/siw-peer)
#
# Needs root, ../siw-lab (which it sets up), gcc, libibverbs-dev and librdmacm-dev on Debian 12.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=$here/../siw-lab
guest=$lab/guest
kernels=${KERNELS:-6.1 6.12}
rddp=${RDDP:-$root/target/release/rddp}
peer=${PEER:-$root/target/release/siw-peer}
export SIW_LAB_NAME=main SIW_LAB_NET=tap SIW_LAB_SHARE=$root/target/siw-main

mode=run only=. inside='' capture=''
while [ $# -gt 0 ]; do
    case $1 in
    --list) mode=list ;;
    --only) only=${2:?--only needs a pattern} && shift ;;
    --inside) inside=1 ;;
    --capture) capture=${2:?--capture needs a folder} && shift ;;
    *)
        sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
    esac
    shift
done

. "$here/matrix-lib.sh"
. "$here/matrix-cases.sh"

[ "$mode" = list ] || prepare
for kernel in $kernels; do
    export SIW_LAB_KERNEL=$kernel
    boot ""
    plain_cases
    halt
    boot "mpa_version=2"
    settings_cases
    halt
done
[ "$mode" = list ] || summary

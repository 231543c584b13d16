# How a command in the guest begins. Read by ./run and ./matrix with ".", not run.
# shellcheck shell=bash disable=SC2034

# Registered memory is locked memory. From /share a program is read page by page while it runs: each
# page takes long enough for a program to miss its time limits, so all are copied first.
begin="[ -d /programs ] || cp -r /share /programs; ulimit -l unlimited"

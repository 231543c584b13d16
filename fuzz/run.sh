#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while: fuzz/run.sh SECONDS [TARGET...]
#
# Prints a line for each target, and the report of one that finds a fault; the exit status is 1 if
# any did. New inputs go to fuzz/corpus-run/, which may be deleted; inputs that show a fault go to
# fuzz/artifacts/.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,6s/^# \{0,1\}//p' fuzz/run.sh
    echo "Targets: $(targets | tr '\n' ' ')"
}

targets() {
    sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | tail -n +2 | sort
}

case "${1:-}" in
'' | *[!0-9]*)
    usage
    exit 2
    ;;
esac
seconds=$1
shift
[ $# -gt 0 ] || mapfile -t names < <(targets)
[ $# -eq 0 ] || names=("$@")
for name in "${names[@]}"; do
    targets | grep -qx "$name" || { echo "fuzz/run.sh: there is no target $name"; usage; exit 2; }
done

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz/run.sh: cargo-fuzz is missing: cargo install --locked cargo-fuzz"
    exit 2
fi
if ! command -v c++ >/dev/null; then
    echo "fuzz/run.sh: a C++ compiler is missing, which libFuzzer needs (Debian: apt-get install g++)"
    exit 2
fi
# The sanitizers' flags are unstable; this makes a stable toolchain accept them.
export RUSTC_BOOTSTRAP=1
# Leaks are not checked: the targets do not promise that there are none.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo fuzz build >"$log" 2>&1; then
    cat "$log"
    exit 1
fi

status=0
for name in "${names[@]}"; do
    mkdir -p "fuzz/corpus-run/$name" "fuzz/corpus/$name"
    # The targets limit the time that an input can take; 4096 octets suffice for every kind of it.
    cargo fuzz run "$name" "fuzz/corpus-run/$name" "fuzz/corpus/$name" -- \
        -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -max_len=4096 -len_control=20 \
        -print_final_stats=1 >"$log" 2>&1
    code=$?
    execs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)
    if [ "$code" -eq 0 ] && [ -n "$execs" ]; then
        printf '%-16s %10s execs  %s  nothing found\n' "$name" "$execs" "$cover"
    else
        # All but libFuzzer's progress.
        grep -v '^#[0-9]' "$log"
        printf '%-16s %10s execs  %s  FAILED (%s)\n' "$name" "${execs:-?}" "$cover" "$code"
        status=1
    fi
done
exit "$status"

# Sourced: a Rust compiler with the source of its standard library, and a sanitizer of the same
# LLVM, in $tools: Debian's rustc-web, unpacked under target/ and not installed. For tests that need
# the standard library built anew.
# shellcheck shell=bash

tools=$(realpath -m target/toolchain)

no_tools() {
    echo "$0: $1; nothing was checked" >&2
    exit 2
}

# What a package depends on, by a pattern.
needs() { # PACKAGE PATTERN
    apt-cache show --no-all-versions "$1" 2>/dev/null | sed -n 's/^Depends: //p' | grep -oE "$2" | head -1
}

fetch_tools() {
    command -v apt-get >/dev/null || no_tools "no apt-get to fetch Debian's packages with"
    local std llvm package packages
    std=$(needs libstd-rust-web-dev 'libstd-rust-web-[0-9.]+') || no_tools "Debian's rustc-web is not in the package lists (apt-get update?)"
    llvm=$(needs "$std" 'libllvm[0-9]+') || no_tools "$std names no LLVM"
    packages=(rustc-web rust-web-src libstd-rust-web-dev "$std" "$llvm" "libclang-rt-${llvm#libllvm}-dev")
    rm -rf "$tools"
    mkdir -p "$tools/packages"
    (cd "$tools/packages" && apt-get -qq download "${packages[@]}" 2>/dev/null) || no_tools "cannot fetch ${packages[*]}"
    for package in "$tools"/packages/*.deb; do
        dpkg -x "$package" "$tools/root"
    done
    rm -r "$tools/packages"
    local runtime
    runtime=$(find "$tools/root" -name 'libclang_rt.tsan-x86_64.so')
    cp "$runtime" "$tools"
    # The name under which rustc looks for it.
    cp "${runtime%.so}.a" "$tools/root/usr/lib/rustlib/x86_64-unknown-linux-gnu/lib/librustc-stable_rt.tsan.a"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
        "$tools/root/usr/lib/x86_64-linux-gnu:$tools/root/usr/lib/llvm-${llvm#libllvm}/lib" "$tools/root/usr/bin/rustc" >"$tools/rustc"
    chmod +x "$tools/rustc"
}

[ -x "$tools/rustc" ] && "$tools/rustc" --version >/dev/null || fetch_tools

# Cargo with that compiler: build_std TARGET SUBCOMMAND WORDS...
build_std() {
    RUSTC=$tools/rustc RUSTC_BOOTSTRAP=1 cargo "$2" --quiet --locked -Zbuild-std=std,panic_unwind,test --target "$1" "${@:3}"
}

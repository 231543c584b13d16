//! Builds the eBPF program, where the feature `kernel` asks for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_KERNEL").is_some() {
        build();
    }
}

fn build() {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("ddp.bpf.o");
    let mut command = Command::new(&clang);
    // Version 3 of the instructions has compare-and-swap.
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-Wno-unused-parameter");
    for folder in kernel_headers() {
        command.arg("-idirafter").arg(folder);
    }
    let built = command.args(["-c", "bpf/ddp.bpf.c", "-o"]).arg(&out).status();
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} did not build kernel-patch/bpf/ddp.bpf.c ({status})"),
        Err(error) => panic!(
            "{clang}: {error}. The feature `kernel` of rddp-kernel-patch needs clang (Debian: apt-get install \
             clang), or its path in CLANG. Without the feature, everything is placed at user level."
        ),
    }
}

/// Returns the folders with `asm/types.h`: Debian has one for each architecture, which clang does
/// not look into for the target `bpf`.
fn kernel_headers() -> Vec<PathBuf> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folders = fs::read_dir("/usr/include").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|path| is_for(path, &arch)).collect()
}

fn is_for(path: &Path, arch: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(arch) && name.ends_with("-linux-gnu") && path.join("asm/types.h").is_file()
}

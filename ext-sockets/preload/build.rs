//! Build script: gives the library its soname, by which programs that are linked with it find it,
//! and binds its own functions to each other.
//!
//! The number in it is that of the ABI (CONTRIBUTING.md, "Versions"). Cargo's file name has none,
//! so a link by the soname stands beside: a program that is linked with a library in `target/` then
//! runs from there, as one that is linked with an installed library does.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const FILE: &str = "librddp_sockets.so";
const SONAME: &str = "librddp_sockets.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // A program may have a function of the same name, and pass calls on to the next one, which is
    // ours: a call of ours by that name would come back to it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // target/PROFILE/build/PACKAGE/out; the library of a build, and that of the tests.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out.ancestors().nth(3).expect("OUT_DIR lies in the profile's folder");
    for folder in [profile, &profile.join("deps")] {
        link(folder);
    }
}

/// Makes the link where cargo keeps libraries in `folder`. Where it does not, nothing needs it.
fn link(folder: &Path) {
    let _ = symlink(FILE, folder.join(SONAME));
}

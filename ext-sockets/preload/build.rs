//! Build script: gives the library its soname, so that a program linked with it finds it by that
//! name in whatever folder it lies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librddp_sockets.so");
}

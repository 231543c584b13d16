//! Names the library inside itself, so that a program linked with it finds it by that name wherever it lies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librddp_sockets.so");
}

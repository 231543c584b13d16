//! Build script: gives the library its soname, which is its file's name: programs are never linked
//! with it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librddp_paths.so");
}

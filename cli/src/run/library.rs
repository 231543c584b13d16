//! The place of `librddp_sockets.so`: beside this command, where cargo puts it, or where libraries
//! are installed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const NAME: &str = "librddp_sockets.so";

/// Folders relative to that of the command.
const NEAR: [&str; 4] = [".", "deps", "../lib", MULTIARCH_NEAR];

const SYSTEM: [&str; 4] = ["/usr/local/lib", MULTIARCH, "/usr/lib", "/usr/lib64"];

#[cfg(target_arch = "aarch64")]
const MULTIARCH: &str = "/usr/lib/aarch64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const MULTIARCH_NEAR: &str = "../lib/aarch64-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const MULTIARCH: &str = "/usr/lib/x86_64-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const MULTIARCH_NEAR: &str = "../lib/x86_64-linux-gnu";

pub(crate) fn find() -> Result<PathBuf, Failure> {
    let command = std::env::current_exe().ok();
    let beside = command.as_deref().and_then(Path::parent);
    let near = beside.into_iter().flat_map(|folder| NEAR.map(|near| folder.join(near)));
    let found = near
        .chain(SYSTEM.map(PathBuf::from))
        .find_map(|folder| folder.join(NAME).canonicalize().ok())
        .ok_or_else(missing)?;
    // The dynamic linker splits its list at spaces and colons.
    if found.as_os_str().as_bytes().iter().any(|octet| matches!(octet, b' ' | b':')) {
        let what = format!("the dynamic linker takes no path with a space or a colon: {}", found.display());
        return Err(
            Failure::failed(what).remedy("install the library elsewhere, for example in /usr/local/lib")
        );
    }
    Ok(found)
}

fn missing() -> Failure {
    Failure::failed(format!("there is no {NAME} beside this command or in /usr/lib"))
        .remedy("cargo build --release --workspace makes it beside the command")
}

//! The places of the libraries: beside this command, where cargo puts them, or where libraries are
//! installed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rddp_command::failure::Failure;

/// A library that programs are run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The socket calls of the C library.
    Sockets,
    /// libibverbs and librdmacm.
    Verbs,
    /// Calls of the C library on paths, for the files of devices.
    Paths,
}

impl Library {
    /// Returns the name of the file as cargo writes it, by which programs are linked.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Library::Sockets => "librddp_sockets.so",
            Library::Verbs => "librddp_verbs.so",
            Library::Paths => "librddp_paths.so",
        }
    }

    /// Returns the SONAME: the name of the file where the library is installed.
    pub(crate) fn soname(self) -> &'static str {
        match self {
            Library::Sockets => "librddp_sockets.so.0",
            Library::Verbs => "librddp_verbs.so",
            Library::Paths => "librddp_paths.so",
        }
    }

    /// Returns the library's file.
    pub(crate) fn find(self) -> Result<PathBuf, Failure> {
        let command = std::env::current_exe().ok();
        let beside = command.as_deref().and_then(Path::parent);
        let near = beside.into_iter().flat_map(|folder| NEAR.map(|near| folder.join(near)));
        let found = near
            .chain(SYSTEM.map(PathBuf::from))
            .find_map(|folder| self.find_in(&folder))
            .ok_or_else(|| self.missing())?;
        check_path(&found)?;
        Ok(found)
    }

    /// Returns the library's file in a folder. Only -dev packages have the name without a number,
    /// and only cargo's folders a file of that name.
    fn find_in(self, folder: &Path) -> Option<PathBuf> {
        [self.soname(), self.file_name()].iter().find_map(|name| folder.join(name).canonicalize().ok())
    }

    fn missing(self) -> Failure {
        let name = self.file_name();
        let remedy = if by_cargo_install() { CARGO_INSTALL } else { BUILD };
        Failure::failed(format!("there is no {name} beside this command or in /usr/lib")).remedy(remedy)
    }
}

const BUILD: &str =
    "cargo build --release --workspace makes it beside the command; installed, the package librddp0 has it";

/// Cargo installs commands only.
const CARGO_INSTALL: &str = "cargo install leaves libraries out: in rddp's sources, cargo build --release --workspace and \
                             then target/release/rddp install --prefix DIR make DIR/bin/rddp with its libraries";

/// Returns whether `cargo install` has put this command where it is: it keeps a list beside the
/// folder of the commands.
fn by_cargo_install() -> bool {
    let command = std::env::current_exe().ok();
    let root = command.as_deref().and_then(|command| command.parent()?.parent());
    root.is_some_and(|root| root.join(".crates.toml").exists())
}

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

/// Refuses paths at which the dynamic linker would split its lists.
pub(crate) fn check_path(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().as_bytes().iter().any(|octet| matches!(octet, b' ' | b':' | b';')) {
        let what = format!(
            "the dynamic linker takes no path with a space, a colon or a semicolon: {}",
            path.display()
        );
        return Err(
            Failure::failed(what).remedy("install the library elsewhere, for example in /usr/local/lib")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_library_is_found_by_its_soname_or_as_cargo_leaves_it() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let (plain, numbered) = (folder.join("librddp_sockets.so"), folder.join("librddp_sockets.so.0"));
        let found = || Library::Sockets.find_in(&folder);
        assert_eq!(found(), None);
        symlink("librddp_sockets.so", &numbered).unwrap(); // before the library was built
        assert_eq!(found(), None);
        fs::write(&plain, "").unwrap();
        assert_eq!(found().as_deref(), Some(&*plain));
        fs::remove_file(&plain).unwrap();
        fs::remove_file(&numbered).unwrap();
        fs::write(&numbered, "").unwrap(); // installed, without the -dev package
        assert_eq!(found().as_deref(), Some(&*numbered));
        symlink("librddp_sockets.so.0", &plain).unwrap();
        assert_eq!(found().as_deref(), Some(&*numbered));
    }
}

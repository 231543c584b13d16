//! The file that will be run, and what prevents the library from being loaded into it.
//!
//! The dynamic linker reports nothing when it ignores a library, and a program without a dynamic
//! linker cannot report anything. So the file is checked first: no program is silently run without
//! the switch.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rddp_command::failure::{Failure, FailureKind};
use rustix::io::Errno;

use super::elf::{self, Linking};
use super::library::Library;

/// Most interpreters that are checked, of which each is a script with the next one as its
/// interpreter. The kernel follows as many.
const DEPTH: usize = 5;

/// Returns the file that the shell would run.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let missing = || {
        Failure::new(FailureKind::NotFound, format!("there is no program {}", name.display()))
            .remedy("name it with its folder, or check PATH")
    };
    let found = if name.as_bytes().contains(&b'/') {
        Some(PathBuf::from(name)).filter(|path| path.exists())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
    };
    let found = found.ok_or_else(missing)?;
    if is_executable(&found) {
        Ok(found)
    } else {
        Err(Failure::new(FailureKind::CannotRun, format!("{}: not a file that may be run", found.display())))
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Checks whether the library will be loaded when `path` is run; the error says why not. Returns
/// the program that it is loaded into: `path`, or the interpreter of that script.
pub(crate) fn takes_library(path: &Path, library: Library) -> Result<PathBuf, Failure> {
    check(path, library, DEPTH)
}

fn check(path: &Path, library: Library, depth: usize) -> Result<PathBuf, Failure> {
    refuse_privileged(path)?;
    let mut head = Vec::new();
    // A file that may be run but not read (mode 0711) is not checked.
    let read = File::open(path).and_then(|file| file.take(elf::HEAD as u64).read_to_end(&mut head));
    if read.is_err() || depth == 0 {
        return Ok(path.to_owned());
    }
    match interpreter(&head) {
        Some(next) => check(&find(&next)?, library, depth - 1),
        None => check_linking(path, &head, library).map(|()| path.to_owned()),
    }
}

/// Refuses setuid and setgid programs, and those with file capabilities: the dynamic linker ignores
/// its variables for them (`secure-execution mode` in ld.so(8)).
fn refuse_privileged(path: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    let (user, group) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    let becomes = |bit: u32, owner: u32, me: u32| found.mode() & bit != 0 && owner != me;
    if becomes(0o4000, found.uid(), user) || becomes(0o2000, found.gid(), group) {
        let what = format!("{} is setuid or setgid: no library is loaded into it", path.display());
        return Err(Failure::new(FailureKind::CannotRun, what)
            .remedy("run it as the user that it becomes, or a copy of it without that bit"));
    }
    // The superuser gains nothing by them.
    if user != 0 && has_capabilities(path) {
        let what = format!("{} has file capabilities: no library is loaded into it", path.display());
        return Err(Failure::new(FailureKind::CannotRun, what)
            .remedy("run a copy of it (cp leaves them behind), if need be as a user that has them"));
    }
    Ok(())
}

fn has_capabilities(path: &Path) -> bool {
    let found = rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]);
    matches!(found, Ok(1..) | Err(Errno::RANGE))
}

/// Returns the program that a script names behind `#!`; for `env`, the program that it will look
/// for.
fn interpreter(head: &[u8]) -> Option<OsString> {
    let line = head.strip_prefix(b"#!")?.split(|octet| *octet == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let word = if first.ends_with(b"/env") { program_of_env(words).unwrap_or(first) } else { first };
    Some(OsStr::from_bytes(word).to_owned())
}

/// Returns the program among the arguments of `env`, behind its options and variables.
fn program_of_env<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    loop {
        match words.next()? {
            // The next word is the option's value: a variable to remove, or a folder.
            b"-u" | b"--unset" | b"-C" | b"--chdir" => _ = words.next(),
            word if word.starts_with(b"-") || word.contains(&b'=') => {}
            word => return Some(word),
        }
    }
}

fn check_linking(path: &Path, head: &[u8], library: Library) -> Result<(), Failure> {
    let cannot = |what: &str, remedy: &str| {
        Err(Failure::new(FailureKind::CannotRun, format!("{} {what}", path.display())).remedy(remedy))
    };
    match elf::linking(head) {
        Linking::Dynamic => Ok(()),
        // Verbs are calls of functions, which Go's cgo makes like other programs.
        Linking::Go { is_dynamic: true } if library == Library::Verbs => Ok(()),
        Linking::Go { .. } if library == Library::Sockets => cannot(
            "is a Go program: Go makes its system calls itself, so the library would see none of them",
            "run it as it is, and leave its connections out of the policy of their other ends",
        ),
        Linking::Static | Linking::Go { .. } => cannot(
            "is linked statically: no library can be loaded into it",
            "build it with dynamic linking (without -static), or take your system's package of it",
        ),
        Linking::Musl => cannot(
            "is linked with musl: the library is for programs of the GNU C library (glibc)",
            "take a build of it for glibc, such as your system's package of it",
        ),
        Linking::OtherMachine => cannot(
            "is for another kind of processor than the library, or for 32 bits",
            "run the program of this host's own kind",
        ),
        Linking::NoProgram => {
            cannot("is neither a program nor a script with #!", "name its interpreter first")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        let cases = [
            ("#!/bin/sh\necho", Some("/bin/sh")),
            ("#! /usr/bin/python3 -u\n", Some("/usr/bin/python3")),
            ("#!/usr/bin/env -S LANG=C python3 -u\n", Some("python3")),
            ("#!/usr/bin/env -S -u LANG python3\n", Some("python3")),
            ("#!/usr/bin/env\n", Some("/usr/bin/env")),
            ("#!\n", None),
            ("#", None),
        ];
        for (head, named) in cases {
            assert_eq!(interpreter(head.as_bytes()).as_deref(), named.map(OsStr::new), "{head}");
        }
    }
}

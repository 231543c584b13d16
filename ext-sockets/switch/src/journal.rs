//! Lines about what the switch does, where the policy wants them.
//!
//! A log file is opened for each line, so that no descriptor of ours is there for the program to
//! see or to close. Root's is in `/var/log`, others' in a folder of their own in `/tmp`, which is
//! refused when it is a link or somebody else's. What cannot be told is not told: the program goes
//! on, with its errno as it was. Standard error that is a connection, as inetd's programs have it,
//! is the peer's to read, and nothing is written there.

use std::fmt::Arguments;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rddp_policy::{Log, LogTo};
use rddp_real::{self as real, is_tcp};
use rddp_stream::SameErrno;

/// How much a line matters, as the policy's `min-level` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// One for each `connect` and `listen`.
    Call = 7,
    /// It is not as the policy says.
    Warning = 8,
    /// It failed.
    Error = 9,
}

/// Tells it, if it matters enough.
pub(crate) fn tell(log: &Log, level: Level, what: Arguments<'_>) {
    if level as u8 >= log.min_level {
        let _same = SameErrno::here();
        // See the module.
        let _ = write(&log.destination, &format!("rddp: {what}\n"));
    }
}

/// Tells why there is no policy, which would have said where.
pub(crate) fn without_policy(what: Arguments<'_>) {
    tell(&Log::default(), Level::Error, what);
}

fn write(destination: &LogTo, line: &str) -> Result<(), Error> {
    match destination {
        LogTo::Stderr if is_tcp(libc::STDERR_FILENO).is_ok() => Ok(()),
        LogTo::Stderr => std::io::stderr().write_all(line.as_bytes()),
        LogTo::Syslog => {
            real::to_syslog(line.trim_end());
            Ok(())
        }
        LogTo::File(name) => append(&folder(name)?, line),
    }
}

fn append(path: &Path, line: &str) -> Result<(), Error> {
    let flags = libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    file.write_all(line.as_bytes())
}

/// Where the file of this name is.
fn folder(name: &str) -> Result<PathBuf, Error> {
    match real::user_id() {
        0 => Ok(Path::new("/var/log").join(name)),
        user => {
            let folder = Path::new("/tmp").join(format!("{name}.{user}"));
            own(&folder, user)?;
            Ok(folder.join("log"))
        }
    }
}

/// Makes it, or makes sure that it is the user's own and nobody else's to write to.
fn own(folder: &Path, user: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == user && found.permissions().mode() & 0o077 == 0;
    if own { Ok(()) } else { Err(Error::from_raw_os_error(libc::EPERM)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_a_link_or_open_to_others_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let user = real::user_id();
        let fresh = scratch.path().join("fresh");
        own(&fresh, user).unwrap();
        own(&fresh, user).unwrap();
        assert_eq!(std::fs::metadata(&fresh).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(own(&fresh, user + 1).is_err());
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&fresh, &link).unwrap();
        assert!(own(&link, user).is_err());
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(own(&fresh, user).is_err());
    }

    #[test]
    fn a_log_that_is_a_link_is_not_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let log = scratch.path().join("log");
        append(&log, "one\n").unwrap();
        append(&log, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        assert!(append(&link, "three\n").is_err());
    }
}

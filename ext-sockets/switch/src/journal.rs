//! The log: lines about the switch's decisions and errors, written where the policy says.
//!
//! A log file is opened for each line, so that the program neither sees nor closes a descriptor of
//! ours. Root's log is in `/var/log`; other users' is in a folder of their own in `/tmp`, which is
//! refused when it is a link or somebody else's. A line that cannot be written is dropped: the
//! program goes on, with its errno as it was. Nothing is written to a standard error that is a
//! connection, as in programs started by inetd: the peer would read it.

use std::fmt::Arguments;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rddp_policy::{Log, LogTo};
use rddp_real::{self as real, is_tcp};
use rddp_stream::SameErrno;

use crate::trace;

/// The importance of a line, in the numbers of the policy's `min-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// A `connect` or `listen`: one line for each.
    Call = 7,
    /// A socket that is used in another way than the policy says.
    Warning = 8,
    /// A call or a policy that failed.
    Error = 9,
}

/// Writes a line, if it is important enough, and makes an event of it.
pub(crate) fn tell(log: &Log, level: Level, what: Arguments<'_>) {
    tell_unless(trace::told(level, what), log, level, what);
}

/// Writes a line, if it is important enough. If `is_shown`, standard error has it already, as an
/// event.
pub(crate) fn tell_unless(is_shown: bool, log: &Log, level: Level, what: Arguments<'_>) {
    if is_shown && log.destination == LogTo::Stderr {
        return;
    }
    if level as u8 >= log.min_level {
        let _same = SameErrno::here();
        // A line that cannot be written is dropped.
        let _ = write(&log.destination, &format!("rddp: {what}\n"));
    }
}

/// Writes the reason why there is no policy, to the default place.
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

/// Returns the path of the log with this name.
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

/// Makes the folder, or checks that it belongs to the user and that nobody else may write to it.
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

//! Entries of a tree that could not be read, as its user is told of them.

use std::io::Error;

use rddp_command::failure::printable_name;
use rddp_command::out;
use serde::Serialize;

use super::record::Name;
use crate::files::FileError;

/// The number of no error, for a file that changed while it was read.
pub(super) const CHANGED: u32 = 0;

/// An entry that could not be read, as `--json` prints it.
#[derive(Serialize)]
struct Unread<'a> {
    unread: &'a str,
    cause: &'a str,
}

/// Returns the error by which an entry could not be read. Any number may come from a server.
pub(super) fn unread(name: Name<'_>, errno: u32) -> FileError {
    match errno {
        CHANGED => FileError::Changed(name.shown()),
        errno => FileError::new(&name.shown(), Error::from_raw_os_error(errno.cast_signed())),
    }
}

/// Tells the user of this end that an entry could not be read.
pub(super) fn complain_unread(name: Name<'_>, errno: u32) {
    complain(&name.shown(), &unread(name, errno));
}

/// Tells the user of this end that something of this name could not be read.
pub(super) fn complain(name: &str, error: &FileError) {
    let cause = error.to_string();
    if out::style().json {
        out::json_complaint(&Unread { unread: name, cause: &cause });
    } else {
        out::complain!("{}", printable_name(&cause));
    }
}

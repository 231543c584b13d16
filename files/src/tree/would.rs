//! Changes that a transfer would make, as `--dry-run` prints them.

use rddp_command::failure::printable_name;
use rddp_command::out::{self, say};
use serde::Serialize;

/// The change that is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Would {
    Send,
    /// A directory is made.
    Make,
    Link,
    /// New permissions of an entry that is there.
    Permit,
    Remove,
}

/// A change, as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    would: Would,
    name: &'a str,
}

/// Prints a change that would be made at the receiver.
pub(super) fn tell_would(would: Would, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    if out::style().json {
        return out::json(&Line { would, name: &name });
    }
    let name = printable_name(&name);
    match would {
        Would::Send => say!("would send {name}"),
        Would::Make => say!("would make {name}/"),
        Would::Link => say!("would link {name}"),
        Would::Permit => say!("would set the permissions of {name}"),
        Would::Remove => say!("would remove {name}"),
    }
}

//! The result of a transfer, as the server prints it.

use rddp_command::device::By;
use rddp_command::failure::printable_name;
use rddp_command::out;
use rddp_command::units::about;
use serde::Serialize;

use crate::checksum::Check;
use crate::protocol::Share;
use crate::show::{count, replaced_text, resumed_text};

/// The result of a transfer, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct Served {
    pub(super) peer: String,
    #[serde(flatten)]
    pub(super) by: By,
    pub(super) op: &'static str,
    pub(super) file: String,
    pub(super) octets: u64,
    /// For a tree: how many files, and how many beside them the receiver had already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unchanged: Option<u64>,
    pub(super) resumed_from: u64,
    /// For a tree over several connections: the number of this one, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connection: Option<(u32, u32)>,
    /// For a put: whether a file with the name was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replaced: Option<bool>,
    pub(super) seconds: f64,
    /// The checksum of the octets; nothing for a listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<Check>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) sha256: String,
    /// For a get of one file.
    #[serde(flatten)]
    pub(super) how: Option<How>,
}

/// The way in which a file was given.
#[derive(Serialize)]
pub(super) struct How {
    pub(super) strategy: &'static str,
    /// The strategy that was asked for, where there was no memory for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instead_of: Option<&'static str>,
    /// Numbers of chunks that were begun while none, one, two, ... were under way: being read or
    /// Read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) under_way: Vec<u64>,
}

impl Served {
    pub(super) fn with_files(self, files: u64, unchanged: u64) -> Self {
        Served { files: Some(files), unchanged: Some(unchanged), ..self }
    }

    /// Notes which of a client's connections this is.
    pub(super) fn over(self, share: Option<Share>) -> Self {
        Served { connection: share.map(|share| (share.number + 1, share.of)), ..self }
    }

    pub(super) fn checked(self, check: Check) -> Self {
        Served { checksum: Some(check), ..self }
    }

    pub(super) fn print(&self, json: bool) {
        if out::style().quiet {
            return;
        }
        if json {
            out::json_event(self);
            return;
        }
        // Of a listing nothing moves but names.
        if self.op == "ls" {
            let (peer, name, seconds) = (&self.peer, printable_name(&self.file), self.seconds);
            out::event(format_args!("{peer}: ls {name}, {seconds:.2} s"));
            return;
        }
        // A peer chose the name, so characters that would move the cursor are escaped.
        let name = printable_name(&self.file);
        let (octets, seconds) = (about(self.octets), self.seconds);
        let (resumed, replaced) =
            (resumed_text(self.resumed_from), replaced_text(self.replaced == Some(true)));
        let files = self.files.map_or_else(String::new, |files| format!("{}, ", count(files)));
        let unchanged = match (self.files, self.unchanged) {
            (None, Some(_)) => ", unchanged".to_owned(),
            (Some(_), Some(count @ 1..)) => format!(", {count} unchanged"),
            _ => String::new(),
        };
        let over = match self.connection {
            Some((number, of)) => format!(", connection {number} of {of}"),
            None => String::new(),
        };
        let by = if self.by.is_host() { format!(", by {}", self.by) } else { String::new() };
        let how = format!("{files}{octets} in {seconds:.2} s{resumed}{replaced}{unchanged}{over}{by}");
        out::event(format_args!("{}: {} {name}, {how}", self.peer, self.op));
    }
}

//! The failure of a subcommand: its cause, what to do about it, and the exit code.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use nix::errno::Errno;
use rddp_rnic::{ConnectError, ConnectFailed, DeviceError, NamedBy, Protocol, Rnic};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::out::{self, complain};
use crate::places::TOO_MANY;

/// The part of every subcommand's help that explains exit codes.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    this host could not do it (memory, files, sockets), or the file changed meanwhile
  2    wrong arguments
  3    the peer is not there, does not speak iWARP, has gone, or broke the protocol
  4    data differ from what they should be
  5    the peer's program refused
  6    done, but something was left out: special files, symbolic links that may lead out, paths that are too long
  130  interrupted
  141  nobody reads the output any more";

/// The remedy where a process can open no more files and sockets.
pub const MORE_FILES: &str = "raise the limit of open files (ulimit -n)";

/// Returns whether an error says that.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// The remedy where there is no way to a peer.
const ROUTE: &str = "check the address, and the route to it (ip route get)";

/// The remedy where a device lacks something.
pub(crate) const LACKS: &str = "rddp doctor shows what it has";

/// The kind of a failure, as far as exit codes distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// This host could not do it.
    Failed,
    /// The file changed during the transfer, here or at the peer.
    Changed,
    /// The arguments contradict each other.
    Usage,
    /// The peer, or the way to it, is at fault.
    Peer,
    /// Octets are not what they should be.
    Mismatch,
    /// The peer's program refused.
    Refused,
    /// The peer has no place for another client at the moment.
    TurnedAway,
    /// Entries of a tree were left out that the user did not ask for.
    LeftOut,
    /// `rddp run`: the program cannot be run, or cannot be run with the library.
    CannotRun,
    /// `rddp run`: there is no such program.
    NotFound,
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads the output, as when SIGPIPE would end a program.
    NobodyReads,
}

impl FailureKind {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            FailureKind::Failed | FailureKind::Changed => 1,
            FailureKind::Usage => 2,
            FailureKind::Peer => 3,
            FailureKind::Mismatch => 4,
            FailureKind::Refused | FailureKind::TurnedAway => 5,
            FailureKind::LeftOut => 6,
            FailureKind::CannotRun => 126,
            FailureKind::NotFound => 127,
            FailureKind::Interrupted => 130,
            FailureKind::NobodyReads => 128 + 13,
        }
    }
}

/// A cause, and a remedy if there is one. Each is printed on one line, whatever names and texts of
/// others it contains.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Failure {
    kind: FailureKind,
    cause: String,
    remedy: Option<String>,
}

impl Failure {
    /// Makes a failure of this kind, without a remedy.
    pub fn new(kind: FailureKind, cause: impl Into<String>) -> Self {
        Failure { kind, cause: printable(&cause.into()), remedy: None }
    }

    /// Makes a failure of this host.
    pub fn failed(cause: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, cause)
    }

    /// Makes a failure of wrong arguments.
    pub fn usage(cause: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, cause)
    }

    /// Makes a failure of the peer, or of the way to it.
    pub fn peer(cause: impl Into<String>) -> Self {
        Self::new(FailureKind::Peer, cause)
    }

    /// Makes a failure of octets that are not what they should be.
    pub fn mismatch(cause: impl Into<String>) -> Self {
        Self::new(FailureKind::Mismatch, cause)
    }

    /// Makes a failure of a peer whose program refused.
    pub fn refused(cause: impl Into<String>) -> Self {
        Self::new(FailureKind::Refused, cause)
    }

    /// Makes the failure of a command that was asked to stop.
    pub fn interrupted() -> Self {
        Self::new(FailureKind::Interrupted, "interrupted")
    }

    /// Adds a remedy: what the user can do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(printable(&remedy.into()));
        self
    }

    /// Names what a failure of the peer happened to.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        if self.kind == FailureKind::Peer {
            self.cause = printable(&format!("{name}: {}", self.cause));
        }
        self
    }

    /// Returns the remedy.
    pub fn how(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// Returns cause and remedy for a log.
    pub fn in_one_line(&self) -> String {
        self.how().map_or_else(|| self.cause.clone(), |remedy| format!("{}; try: {remedy}", self.cause))
    }

    /// Returns the kind.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns whether there is nothing to print: the user, or the reader of the output, knows.
    pub fn is_silent(&self) -> bool {
        self.remedy.is_none() && matches!(self.kind, FailureKind::Interrupted | FailureKind::NobodyReads)
    }

    /// Prints cause and remedy to standard error, with `--json` as an object.
    pub fn report(&self) -> ExitCode {
        if out::style().json {
            out::json_complaint(&Report { error: self });
            return ExitCode::from(self.kind.code());
        }
        complain!("rddp: {}", self.cause);
        if let Some(remedy) = &self.remedy {
            complain!("  try: {remedy}");
        }
        ExitCode::from(self.kind.code())
    }

    /// The failure of a device of this host, behind these words.
    pub fn of_device(before: &str, error: &DeviceError) -> Self {
        let failure = Self::failed(format!("{before}{}", error.cause()));
        match error {
            DeviceError::Unsupported { .. } => failure.remedy(LACKS),
            _ => Failure { remedy: error.remedy().map(printable), ..failure },
        }
    }

    /// The failure to connect to `addr` by a device of this host or in software.
    pub fn connecting_by(rnic: &Rnic, addr: SocketAddr, error: &ConnectError, what: &str) -> Self {
        let protocol = rnic.capabilities().protocol;
        match error {
            ConnectError::TimedOut(time) if protocol != Protocol::Iwarp => Self::peer(format!(
                "connecting to {addr}: the peer did not answer within {time:?}"
            ))
            .remedy(format!(
                "is it {what}, by {protocol} too? A firewall may be between (RoCE has UDP port 4791)"
            )),
            _ => Self::connecting(addr, error, what),
        }
    }

    /// The failure to connect to `addr`; `what` is what should be listening there.
    pub fn connecting(addr: SocketAddr, error: &ConnectError, what: &str) -> Self {
        use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let failure = Self::peer(format!("connecting to {addr}: {error}"));
        match error {
            ConnectError::Tcp(error) => match error.kind() {
                ConnectionRefused => Self::peer(format!("nothing listens on {addr}"))
                    .remedy(format!("start {what} there, or name its port")),
                HostUnreachable | NetworkUnreachable => failure.remedy(ROUTE),
                _ => failure,
            },
            ConnectError::TimedOut(time) => {
                Self::peer(format!("connecting to {addr}: the peer did not answer the MPA startup within {time:?}"))
                    .remedy(format!(
                        "is it {what}? Then its log says what keeps it; a plain TCP service does not answer, nor does a firewall"
                    ))
            }
            ConnectError::Device(error) => match error {
                DeviceError::Call { error, .. }
                    if matches!(error.kind(), HostUnreachable | NetworkUnreachable) =>
                {
                    failure.remedy(ROUTE)
                }
                _ => Self::of_device(&format!("connecting to {addr}: "), error),
            },
            ConnectError::Unreached(ConnectFailed::NoRoute { .. }) => failure.remedy(ROUTE),
            ConnectError::Unreached(_) => failure.remedy(format!(
                "start {what} there, on a device too where this one is no RNIC; or --device soft here"
            )),
            // A server without a free place closes before it has read anything.
            ConnectError::Closed | ConnectError::Startup(_) => failure.remedy(format!(
                "is it {what}? A plain TCP service does not speak MPA, or the server has too many connections at the moment"
            )),
            ConnectError::Rejected { private_data } => match readable(private_data) {
                Some(reason) if reason == TOO_MANY => {
                    Self::new(FailureKind::TurnedAway, format!("{addr} refused: {reason}"))
                }
                Some(reason) => Self::refused(format!("{addr} refused: {reason}")),
                None => Self::refused(format!("{addr} refused the connection")),
            },
            _ => failure,
        }
    }
}

/// Returns text in which characters that would move a terminal's cursor, or turn the direction of
/// writing, are escaped.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) { shown.push(c) } else { shown.extend(c.escape_debug()) }
    }
    shown
}

/// Returns a name, or a sentence about one that has no other backslashes, as [`printable`] does,
/// with its backslashes doubled: it is not taken for a name whose characters were escaped.
pub fn printable_name(name: &str) -> String {
    printable(&name.replace('\\', r"\\"))
}

/// Returns whether a character only shows, and makes a terminal do nothing else.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !is_invisible(c)
}

/// Characters of no width, and those that change the direction or end the line.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a peer's octets as text, if a terminal may show them.
pub fn readable(octets: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(octets).ok()?.trim_end_matches('\0');
    (!text.is_empty() && text.chars().all(is_printable)).then_some(text)
}

/// The object that `--json` prints for a failure.
#[derive(Serialize)]
struct Report<'a> {
    error: &'a Failure,
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Failure", 4)?;
        object.serialize_field("kind", &self.kind)?;
        object.serialize_field("exit_code", &self.kind.code())?;
        object.serialize_field("cause", &self.cause)?;
        object.serialize_field("remedy", &self.remedy)?;
        object.end()
    }
}

impl From<rddp_rnic::Error> for Failure {
    fn from(error: rddp_rnic::Error) -> Self {
        let failure = Self::failed(error.to_string());
        match error {
            rddp_rnic::Error::Host { what, .. } if what.contains("RDDP_CAPTURE") => {
                failure.remedy("have RDDP_CAPTURE name a file that can be written, or unset it")
            }
            rddp_rnic::Error::NamedDevice { error, by } => {
                let without = match by {
                    NamedBy::Program => "--device soft: rddp itself moves the octets, over TCP",
                    NamedBy::Variable => {
                        "unset RDDP_DEVICE, or set it to soft: rddp itself moves the octets, over TCP"
                    }
                };
                let failure = Self::of_device("", &error);
                let remedy = failure.how().map_or_else(String::new, |remedy| format!("{remedy}; or "));
                failure.remedy(remedy + without)
            }
            rddp_rnic::Error::Device(error) => Self::of_device("", &error),
            rddp_rnic::Error::Memory(error) => error.into(),
            rddp_rnic::Error::Host { error, .. } if is_out_of_files(&error) => failure.remedy(MORE_FILES),
            rddp_rnic::Error::Host { .. } => failure.remedy("rddp doctor shows this host's limits"),
            _ => failure,
        }
    }
}

impl From<rddp_rnic::MemError> for Failure {
    fn from(error: rddp_rnic::MemError) -> Self {
        match error {
            rddp_rnic::MemError::Device(error) => Self::of_device("", &error),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<rddp_rnic::PostError> for Failure {
    fn from(error: rddp_rnic::PostError) -> Self {
        Self::failed(format!("posting a work request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_octets_are_shown_only_when_they_are_harmless_text() {
        assert_eq!(readable(b"no such session\0\0"), Some("no such session"));
        assert_eq!(readable(b"\x1b[31mred"), None);
        assert_eq!(readable(b"\xff\xfe"), None);
        assert_eq!(readable(b""), None);
        assert_eq!(readable("a\u{202e}b".as_bytes()), None);
    }

    #[test]
    fn characters_that_move_the_cursor_are_escaped() {
        let failure = Failure::peer("a\u{1b}[2J\nb\u{9b}c\u{202e}").remedy("d\re");
        assert_eq!(failure.to_string(), r"a\u{1b}[2J\nb\u{9b}c\u{202e}");
        assert_eq!(failure.how(), Some(r"d\re"));
        let plain = "\"it's\" C:\\ e\u{301} \u{1f600} \u{e4}";
        assert_eq!(printable(plain), plain);
        assert_eq!(["a\nb", r"a\nb"].map(printable_name), [r"a\nb", r"a\\nb"]);
    }
}

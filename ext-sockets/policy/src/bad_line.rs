//! Errors in the lines of a policy, each with its remedy.

use super::faults::BadRule;

/// An error in one line of a policy. The line is left out; the other lines hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the error.
    pub reason: Reason,
}

impl BadLine {
    /// Returns a sentence that says how to mend the line.
    pub fn remedy(&self) -> &'static str {
        self.reason.remedy()
    }
}

/// The ways in which a line can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The line has octets that are not UTF-8.
    #[error("it is not UTF-8 text")]
    NotText,
    /// The first word is not one that a line may begin with.
    #[error("{0:?} begins no line")]
    Statement(String),
    /// The line ends too early: the named part is missing.
    #[error("the {0} is missing")]
    Missing(&'static str),
    /// The line has words behind its end.
    #[error("{0:?} is too much")]
    TooMuch(String),
    /// No family has this name.
    #[error("{0:?} is no family")]
    Family(String),
    /// No role has this name.
    #[error("{0:?} is no role")]
    Role(String),
    /// The text is not a valid pattern for program names.
    #[error("{0:?} is no pattern for a program's name")]
    Program(String),
    /// The text is not an address.
    #[error("{0:?} is no address")]
    Address(String),
    /// The prefix is not a number, or longer than the address.
    #[error("{0:?} is no length of a prefix")]
    Prefix(String),
    /// The text is not a port.
    #[error("{0:?} is no port")]
    Port(String),
    /// A range of ports ends before it begins.
    #[error("the ports {0:?} end before they begin")]
    PortOrder(String),
    /// `log` has no setting of this name.
    #[error("{0:?} is nothing to set for the log")]
    LogSetting(String),
    /// `log` has no destination of this name.
    #[error("{0:?} is no destination")]
    LogDestination(String),
    /// A path stands where the name of a file is wanted.
    #[error("{0:?} is no name of a log file")]
    LogFile(String),
    /// A threshold is set for something that has none.
    #[error("{0:?} has no threshold")]
    ThresholdOf(String),
    /// The text is not a threshold.
    #[error("{0:?} is no threshold")]
    Threshold(String),
    /// The text is not a level of the log.
    #[error("{0:?} is no level")]
    LogLevel(String),
    /// No setting of a `placement` line has this name.
    #[error("{0:?} is no setting of placement")]
    PlacementSetting(String),
    /// No setting of a `verbs` line has this name.
    #[error("{0:?} is no setting of a connection")]
    Setting(String),
    /// The words behind `fault PROGRAM` are no rule.
    #[error("{0}")]
    Rule(BadRule),
    /// A setting does not take this value.
    #[error("{value:?} is no value of {setting}")]
    Value {
        /// The value.
        value: String,
        /// The setting.
        setting: &'static str,
        /// Values that the setting takes.
        takes: &'static str,
    },
}

impl Reason {
    fn remedy(&self) -> &'static str {
        match self {
            Reason::NotText => "write the file as UTF-8; names and addresses need no other octets",
            Reason::Statement(_) => {
                "begin it with \"use\", \"log\", \"threshold\", \"placement\", \"verbs\" or \"fault\", or with # if \
                 it is a comment"
            }
            Reason::Missing("program's name" | "peer's address" | "setting" | "value of the setting") => {
                "write: verbs PROGRAM ADDRESS:PORT SETTING=VALUE, for example: verbs * 192.0.2.0/24:* crc=off"
            }
            Reason::Missing("level of placement" | "value of placement's setting")
            | Reason::PlacementSetting(_) => {
                "write: placement user|auto|kernel interfaces=NAME,NAME trusted=on, where the latter two may \
                 be left out"
            }
            Reason::Setting(_) => {
                "it is one of mpa, crc, markers, peer-to-peer, rtr, ird, ord, extensions, speaks-first and \
                 large-fpdus"
            }
            Reason::Value { takes, .. } => takes,
            Reason::Missing("program of the fault") => {
                "write: fault PROGRAM RULE, for example: fault rping call=ibv_reg_mr nth=1 errno=ENOMEM"
            }
            Reason::Rule(bad) => bad.remedy(),
            Reason::Missing("end of a transfer" | "threshold")
            | Reason::ThresholdOf(_)
            | Reason::Threshold(_) => "write: threshold source|sink and a number of octets, all or none",
            Reason::Missing("destination" | "name of the file" | "level") => LOG,
            Reason::Missing(_) => {
                "write: use tcp|ddp|sdp|both server|client PROGRAM ADDRESS:PORT, for example: use ddp client * *:5001"
            }
            Reason::TooMuch(_) => "one rule a line; a comment begins with #",
            Reason::Family(_) => "it is one of tcp, ddp, both, sdp, sdp-or-tcp",
            // libsdp has `both` as a family alone.
            Reason::Role(word) if word == "both" => "write a line for server, and one for client",
            Reason::Role(_) => "it is server (who listens) or client (who connects)",
            Reason::Program(_) => {
                "name the program without its folder, or a pattern of * ? [a-z]; a [ needs its ]"
            }
            Reason::Address(_) => {
                "write * or an IPv4 address, or an IPv6 address in brackets, then a colon and the port: 192.0.2.0/24:80, [2001:db8::/32]:80"
            }
            Reason::Prefix(_) => "it is 0 to 32 behind an IPv4 address, 0 to 128 behind an IPv6 address",
            Reason::Port(_) => "write * or a number from 0 to 65535, or two with a - between them",
            Reason::PortOrder(_) => "write the lower port first",
            Reason::LogSetting(_) => {
                "write: log destination stderr|syslog|file NAME, or: log min-level 1 to 9"
            }
            Reason::LogDestination(_) => "it is stderr, syslog, or file and a name",
            Reason::LogFile(_) => {
                "name it without a folder: it is made in /var/log for root, else in a folder of the user's own in /tmp"
            }
            Reason::LogLevel(_) => "it is 1 (everything) to 9 (errors only)",
        }
    }
}

const LOG: &str = "write: log destination stderr|syslog|file NAME, or: log min-level 1 to 9";

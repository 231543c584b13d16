//! The policy of the socket switch: which connections travel by which family.
//!
//! The grammar is that of libsdp.conf, with the families `ddp`, `auto` and `sdp-or-tcp`, with IPv6
//! addresses and with thresholds of SDP added:
//!
//! ```text
//! # comments, and empty lines
//! log  destination (stderr | syslog | file NAME)  min-level (1 to 9)
//! use  FAMILY  (server | client)  PROGRAM  ADDRESS[/PREFIX]:PORT[-PORT]
//! threshold  (source | sink)  (OCTETS | all | none)
//! placement  (user | auto | kernel)  [interfaces=NAME[,NAME...]]  [trusted=(on | off)]
//! verbs  PROGRAM  ADDRESS[/PREFIX]:PORT[-PORT]  SETTING=VALUE ...
//! fault  PROGRAM  RULE
//! ```
//!
//! FAMILY is `tcp`, `ddp`, `sdp`, `both` or `sdp-or-tcp`; `auto` is another word for `both`.
//! `listen` and `connect` are other words for `server` and `client`. PROGRAM is a shell pattern for
//! the program's name without its folder. An IPv6 address stands in brackets with its prefix; `*`
//! is any address or any port. The first rule that matches counts; **a connection that no rule
//! matches is plain TCP**: a library that is loaded without a policy changes nothing.
//!
//! A `verbs` line sets something for connections of an RDMA program ([`VerbsSettings`]): at either
//! end ADDRESS is the peer's, and PORT that at which the server listens. Of the lines that match,
//! the first that names a setting counts for it.
//!
//! A `fault` line has a fault made in an RDMA program, for a test of it ([`FaultRule`]).
//!
//! A `placement` line says what raw mode has the kernel place, and on which interfaces
//! ([`PlacementSettings`]); the last line that names a setting counts for it.
//!
//! A file that was written for libsdp means what it meant there ([`Policy::parse_libsdp`]): `both`
//! is SDP or else plain TCP, which is also the family of a connection that no rule matches.
//!
//! The crate is pure: octets in, rules out. A line that is wrong is reported with its number and a
//! remedy, and the other lines hold.
//!
//! ```
//! use rddp_policy::{Family, Policy, Side};
//!
//! let (policy, faults) = Policy::parse(b"use ddp client curl* [2001:db8::/32]:443\n");
//! assert!(faults.is_empty());
//! let server = "[2001:db8::7]:443".parse().unwrap();
//! assert_eq!(policy.family(Side::Client, b"curl", server), Family::Ddp);
//! assert_eq!(policy.family(Side::Client, b"curl", "192.0.2.1:443".parse().unwrap()), Family::Tcp);
//! ```
#![forbid(unsafe_code)]

mod address;
mod bad_line;
mod faults;
mod glob;
mod keys;
mod parse;
mod placement;
mod roce;
mod thresholds;
mod verbs;

#[cfg(test)]
mod libsdp_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verbs_tests;

use core::net::SocketAddr;

use address::Destination;
use faults::FaultLine;
use verbs::VerbsRule;

pub use address::Network;
pub use bad_line::{BadLine, Reason};
pub use faults::{
    BadRule, CallEffect, Count, Fault, FaultOperation, FaultRule, FaultStatus, Moment, PortEffect,
    RequestEffect,
};
pub use keys::VariableFault;
pub use placement::{PlacementLevel, PlacementSettings};
pub use roce::{RoceDevice, RoceFault};
pub use thresholds::{NO_THRESHOLD, Thresholds};
pub use verbs::{RtrKinds, VerbsSettings};

/// The protocol by which a connection travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Plain TCP.
    #[default]
    Tcp,
    /// FPDUs over TCP (DDPMODE).
    Ddp,
    /// FPDUs if the other end uses them, else plain TCP.
    Both,
    /// The Sockets Direct Protocol.
    Sdp,
    /// The Sockets Direct Protocol if the other end uses it, else plain TCP: `both` of libsdp.
    SdpOrTcp,
}

impl Family {
    /// Returns the word for this family in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Family::Tcp => "tcp",
            Family::Ddp => "ddp",
            Family::Both => "both",
            Family::Sdp => "sdp",
            Family::SdpOrTcp => "sdp-or-tcp",
        }
    }

    /// Returns whether a connection of this family may speak SDP.
    pub fn may_be_sdp(self) -> bool {
        matches!(self, Family::Sdp | Family::SdpOrTcp)
    }
}

/// The end of connections that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The listening end; the rule's address is its own.
    Server,
    /// The connecting end; the rule's address is the other end's.
    Client,
}

/// Rules and log settings, as read from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    /// The family where no rule matches.
    otherwise: Family,
    log: Log,
    thresholds: Thresholds,
    placement: PlacementSettings,
    verbs: Vec<VerbsRule>,
    faults: Vec<FaultLine>,
}

/// Settings of the log: the least level, and the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Destination of the lines.
    pub destination: LogTo,
    /// Least level that is written: 9 for errors only, 1 for everything.
    pub min_level: u8,
}

/// Destinations of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Standard error.
    Stderr,
    /// The system's log.
    Syslog,
    /// A file of this name, in a folder that the library chooses.
    File(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Number of its line, from 1 on; `None` where it is of no file.
    line: Option<usize>,
    family: Family,
    side: Side,
    program: Vec<u8>,
    destination: Destination,
}

impl Policy {
    /// Returns a policy with one rule, which gives everything this family.
    pub fn always(family: Family) -> Self {
        let rule =
            |side| Rule { line: None, family, side, program: b"*".to_vec(), destination: Destination::ANY };
        Policy { rules: vec![rule(Side::Server), rule(Side::Client)], ..Policy::default() }
    }

    /// Parses the octets of a file. Returns the policy, and an error for every line that was left
    /// out.
    pub fn parse(octets: &[u8]) -> (Self, Vec<BadLine>) {
        parse::parse(octets, parse::Dialect::Own)
    }

    /// Parses the octets of a file that was written for libsdp, and gives them libsdp's meaning:
    ///
    /// - `both` is [`Family::SdpOrTcp`], and so is a connection that no rule matches;
    /// - a file without any rule gives everything [`Family::Sdp`];
    /// - an IPv6 address needs no brackets: the port stands behind the last colon;
    /// - of the log file's path, the last part counts.
    pub fn parse_libsdp(octets: &[u8]) -> (Self, Vec<BadLine>) {
        let (mut policy, faults) = parse::parse(octets, parse::Dialect::Libsdp);
        policy.otherwise = if policy.rules.is_empty() { Family::Sdp } else { Family::SdpOrTcp };
        (policy, faults)
    }

    /// Returns the family of `program`'s connections to or at `addr`.
    pub fn family(&self, side: Side, program: &[u8], addr: SocketAddr) -> Family {
        self.choice(side, program, addr).0
    }

    /// Returns the family as [`family`](Self::family) does, and the number of the line that says
    /// so, from 1 on; `None` where no rule of a file does.
    pub fn choice(&self, side: Side, program: &[u8], addr: SocketAddr) -> (Family, Option<usize>) {
        let first = self.rules.iter().find(|rule| {
            rule.side == side && rule.destination.holds(addr) && glob::matches(&rule.program, program)
        });
        first.map_or((self.otherwise, None), |rule| (rule.family, rule.line))
    }

    /// Returns whether anything of this side gives `program` something else than plain TCP.
    pub fn concerns(&self, side: Side, program: &[u8]) -> bool {
        self.otherwise != Family::Tcp
            || self.rules.iter().any(|rule| {
                rule.side == side && rule.family != Family::Tcp && glob::matches(&rule.program, program)
            })
    }

    /// Returns whether there are connections, of whatever program, that may speak SDP.
    pub fn may_give_sdp(&self) -> bool {
        self.otherwise.may_be_sdp() || self.rules.iter().any(|rule| rule.family.may_be_sdp())
    }

    /// Returns the family that a policy calls by this word.
    pub fn family_of(word: &str) -> Option<Family> {
        parse::family(word).ok()
    }

    /// Returns the thresholds of SDP that the file sets.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Returns the settings of placement in the kernel that the file makes.
    pub fn placement(&self) -> &PlacementSettings {
        &self.placement
    }

    /// Returns what the `verbs` lines set for `program`'s connections with `peer`, whose port is
    /// that at which the server listens, be it the peer or not.
    pub fn verbs(&self, program: &[u8], peer: SocketAddr) -> VerbsSettings {
        let matching = self.verbs.iter().filter(|rule| rule.holds(program, peer));
        matching.fold(VerbsSettings::default(), |settings, rule| settings.or(rule.settings))
    }

    /// Returns the rules of faults that are made in `program`.
    pub fn faults(&self, program: &[u8]) -> impl Iterator<Item = &FaultRule> {
        let lines = self.faults.iter().filter(|line| glob::matches(&line.program, program));
        lines.map(|line| &line.rule)
    }

    /// Returns whether any connection of `program` may use the extensions of RFC 7306.
    pub fn may_give_extensions(&self, program: &[u8]) -> bool {
        let mut rules = self.verbs.iter();
        rules.any(|rule| rule.settings.extensions == Some(true) && glob::matches(&rule.program, program))
    }

    /// Returns whether the policy says anything of sockets.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty() || self.otherwise != Family::Tcp
    }

    /// Returns the settings of the log.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { destination: LogTo::Stderr, min_level: 9 }
    }
}

//! The policy of the socket switch: which connections travel in which way.
//!
//! The grammar is that of libsdp.conf, with the families `ddp` and `auto` and with IPv6 addresses added:
//!
//! ```text
//! # comments, and empty lines
//! log  destination (stderr | syslog | file NAME)  min-level (1 to 9)
//! use  (tcp | ddp | sdp | both)  (server | client)  PROGRAM  ADDRESS[/PREFIX]:PORT[-PORT]
//! ```
//!
//! `listen` and `connect` are other words for `server` and `client`, `auto` is one for `both`. PROGRAM is a pattern as shells have them for the program's
//! name without its folder. An IPv6 address stands in brackets with its prefix; `*` is any address or any port. The first rule that
//! matches counts; **where none does, it is plain TCP**: a library that is loaded without a policy changes nothing.
//!
//! Pure: octets in, rules out. A line that makes no sense is told with its number and what to do, and the others hold.
//!
//! ```
//! use rddp_policy::{Family, Policy, Side};
//!
//! let (policy, faults) = Policy::parse(b"use ddp client curl* [2001:db8::/32]:443\n");
//! assert!(faults.is_empty());
//! assert_eq!(policy.family(Side::Client, b"curl", "[2001:db8::7]:443".parse().unwrap()), Family::Ddp);
//! assert_eq!(policy.family(Side::Client, b"curl", "192.0.2.1:443".parse().unwrap()), Family::Tcp);
//! ```
#![forbid(unsafe_code)]

mod address;
mod fault;
mod glob;
mod parse;

#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use address::Destination;

pub use fault::{Fault, Reason};

/// How a connection travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// As TCP carries it.
    Tcp,
    /// In FPDUs.
    Ddp,
    /// In FPDUs if the other end does that, else as TCP carries it.
    Both,
    /// By the Sockets Direct Protocol.
    Sdp,
}

impl Family {
    /// As a policy writes it.
    pub fn word(self) -> &'static str {
        match self {
            Family::Tcp => "tcp",
            Family::Ddp => "ddp",
            Family::Both => "both",
            Family::Sdp => "sdp",
        }
    }
}

/// Which end of connections a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who listens; the address is its own.
    Server,
    /// Who connects; the address is the other end's.
    Client,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    log: Log,
}

/// What is told, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where lines go.
    pub destination: LogTo,
    /// The least important lines that are told: 9 for errors only, 1 for everything.
    pub min_level: u8,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Standard error.
    Stderr,
    /// The system's log.
    Syslog,
    /// A file of this name; where it is is the library's to say.
    File(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    family: Family,
    side: Side,
    program: Vec<u8>,
    destination: Destination,
}

impl Policy {
    /// The one rule for everything.
    pub fn always(family: Family) -> Self {
        let rule = |side| Rule { family, side, program: b"*".to_vec(), destination: Destination::ANY };
        Policy { rules: vec![rule(Side::Server), rule(Side::Client)], log: Log::default() }
    }

    /// What these octets of a file say, and every line that makes no sense.
    pub fn parse(octets: &[u8]) -> (Self, Vec<Fault>) {
        parse::parse(octets)
    }

    /// How `program`'s connections to or at `addr` travel.
    pub fn family(&self, side: Side, program: &[u8], addr: SocketAddr) -> Family {
        let first = self.rules.iter().find(|rule| {
            rule.side == side && rule.destination.holds(addr) && glob::matches(&rule.program, program)
        });
        first.map_or(Family::Tcp, |rule| rule.family)
    }

    /// Returns whether any rule of this side gives `program` something else than plain TCP.
    pub fn concerns(&self, side: Side, program: &[u8]) -> bool {
        self.rules.iter().any(|rule| {
            rule.side == side && rule.family != Family::Tcp && glob::matches(&rule.program, program)
        })
    }

    /// The family of this name.
    pub fn family_of(word: &str) -> Option<Family> {
        parse::family(word).ok()
    }

    /// What is told, and where.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { destination: LogTo::Stderr, min_level: 9 }
    }
}

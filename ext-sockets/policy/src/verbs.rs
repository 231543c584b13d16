//! Settings of the connections of RDMA programs: those of a policy's `verbs` lines, and those of
//! the environment.

use core::net::SocketAddr;

use super::address::{Destination, digits};
use super::bad_line::Reason;
use super::glob;
use super::keys::{self, Key, SWITCH, VariableFault, switch};
use super::parse::{Dialect, pattern};

/// Settings of one connection; `None` where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsSettings {
    /// The MPA revision that a client begins with: 1 or 2.
    pub mpa: Option<u8>,
    /// This end asks for CRC.
    pub crc: Option<bool>,
    /// This end asks the peer for markers.
    pub markers: Option<bool>,
    /// A client asks for a peer-to-peer connection (RFC 6581 §9.2).
    pub peer_to_peer: Option<bool>,
    /// The kinds of RTR that a client offers, and a server accepts.
    pub rtr: Option<RtrKinds>,
    /// The most inbound Reads and atomics at a time.
    pub ird: Option<u8>,
    /// The most outbound Reads and atomics at a time.
    pub ord: Option<u8>,
    /// Immediate Data and atomics (RFC 7306) may be used, by either end.
    pub extensions: Option<bool>,
    /// A server may send before its client's first message has come (against RFC 5044 §7.1.2).
    pub speaks_first: Option<bool>,
    /// FPDUs longer than TCP segments are asked for, and agreed to (against RFC 5044 §4.5).
    pub large_fpdus: Option<bool>,
}

/// The variable by which the iWARP device is as strict as hardware. It is no setting of
/// connections: queue pairs are made before anybody knows their peer.
const STRICT: &str = "RDDP_VERBS_STRICT";

/// A set of kinds of RTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrKinds {
    /// A Send of no octets.
    pub send: bool,
    /// An RDMA Write of no octets.
    pub write: bool,
    /// An RDMA Read of no octets.
    pub read: bool,
}

/// The greatest IRD and ORD of the device.
const MOST: u32 = 128;

const KEYS: [Key<VerbsSettings>; 10] = [
    Key {
        word: "mpa",
        variable: "RDDP_VERBS_MPA",
        takes: "1 or 2",
        set: |settings, word| number(word, 1..=2).map(|revision| settings.mpa = Some(revision)),
    },
    Key {
        word: "crc",
        variable: "RDDP_VERBS_CRC",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.crc = Some(on)),
    },
    Key {
        word: "markers",
        variable: "RDDP_VERBS_MARKERS",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.markers = Some(on)),
    },
    Key {
        word: "peer-to-peer",
        variable: "RDDP_VERBS_PEER_TO_PEER",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.peer_to_peer = Some(on)),
    },
    Key {
        word: "rtr",
        variable: "RDDP_VERBS_RTR",
        takes: "send, write or read, or several with commas between them",
        set: |settings, word| kinds(word).map(|kinds| settings.rtr = Some(kinds)),
    },
    Key {
        word: "ird",
        variable: "RDDP_VERBS_IRD",
        takes: "a number from 0 to 128",
        set: |settings, word| number(word, 0..=MOST).map(|depth| settings.ird = Some(depth)),
    },
    Key {
        word: "ord",
        variable: "RDDP_VERBS_ORD",
        takes: "a number from 0 to 128",
        set: |settings, word| number(word, 0..=MOST).map(|depth| settings.ord = Some(depth)),
    },
    Key {
        word: "extensions",
        variable: "RDDP_VERBS_EXTENSIONS",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.extensions = Some(on)),
    },
    Key {
        word: "speaks-first",
        variable: "RDDP_VERBS_SPEAKS_FIRST",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.speaks_first = Some(on)),
    },
    Key {
        word: "large-fpdus",
        variable: "RDDP_VERBS_LARGE_FPDUS",
        takes: SWITCH,
        set: |settings, word| switch(word).map(|on| settings.large_fpdus = Some(on)),
    },
];

impl VerbsSettings {
    /// The variables, by name.
    pub fn variables() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.variable).chain([STRICT])
    }

    /// Returns whether the environment asks for a device that is as strict as hardware.
    ///
    /// # Errors
    /// The variable has a value that it does not take.
    pub fn is_strict(variable: impl Fn(&str) -> Option<Vec<u8>>) -> Result<bool, VariableFault> {
        let Some(value) = variable(STRICT).filter(|value| !value.is_empty()) else { return Ok(false) };
        let on = std::str::from_utf8(&value).ok().and_then(switch);
        on.ok_or_else(|| VariableFault::new(STRICT, &value, SWITCH))
    }

    /// Returns the settings that variables of the environment make, and the variables whose values
    /// they do not take. One without a value counts as not set.
    pub fn of_variables(variable: impl Fn(&str) -> Option<Vec<u8>>) -> (Self, Vec<VariableFault>) {
        keys::of_variables(&KEYS, variable)
    }

    /// Returns these settings, with those of `others` where nothing is said.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        VerbsSettings {
            mpa: self.mpa.or(others.mpa),
            crc: self.crc.or(others.crc),
            markers: self.markers.or(others.markers),
            peer_to_peer: self.peer_to_peer.or(others.peer_to_peer),
            rtr: self.rtr.or(others.rtr),
            ird: self.ird.or(others.ird),
            ord: self.ord.or(others.ord),
            extensions: self.extensions.or(others.extensions),
            speaks_first: self.speaks_first.or(others.speaks_first),
            large_fpdus: self.large_fpdus.or(others.large_fpdus),
        }
    }
}

/// A `verbs` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerbsRule {
    pub(super) program: Vec<u8>,
    peer: Destination,
    pub(super) settings: VerbsSettings,
}

impl VerbsRule {
    /// Parses what is behind the line's first word.
    pub(super) fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Self, Reason> {
        let program = pattern(words.next().ok_or(Reason::Missing("program's name"))?)?;
        let peer = words.next().ok_or(Reason::Missing("peer's address"))?;
        let peer = Destination::parse(peer, Dialect::Own)?;
        let mut rest = keys::words(words).peekable();
        if rest.peek().is_none() {
            return Err(Reason::Missing("setting"));
        }
        let mut settings = VerbsSettings::default();
        keys::take_all(&KEYS, &mut settings, rest, Reason::Setting, "value of the setting")?;
        Ok(VerbsRule { program, peer, settings })
    }

    pub(super) fn holds(&self, program: &[u8], peer: SocketAddr) -> bool {
        self.peer.holds(peer) && glob::matches(&self.program, program)
    }
}

fn number(word: &str, range: core::ops::RangeInclusive<u32>) -> Option<u8> {
    digits(word).filter(|number| range.contains(number)).map(|number| number as u8)
}

fn kinds(words: &str) -> Option<RtrKinds> {
    words.split(',').try_fold(RtrKinds::default(), |kinds, word| match word {
        "send" => Some(RtrKinds { send: true, ..kinds }),
        "write" => Some(RtrKinds { write: true, ..kinds }),
        "read" => Some(RtrKinds { read: true, ..kinds }),
        _ => None,
    })
}

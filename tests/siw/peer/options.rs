//! The arguments: `PEER active|passive ADDRESS PORT SCENARIO [KEY=VALUE...]`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use rddp_rnic::{ConnectOptions, Keepalive, PortMapper, Revision, RtrSet};

/// One of the two ends; as a number, it is in the data's pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Active = 0,
    Passive = 1,
}

impl End {
    pub fn other(self) -> Self {
        match self {
            End::Active => End::Passive,
            End::Passive => End::Active,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Send { solicited: bool, invalidate: bool },
    Write,
    Read,
    Immediate,
    WriteImmediate,
    FetchAdd,
    CmpSwap,
}

impl Item {
    /// Returns whether it completes a receive of the peer's.
    pub fn is_received(self) -> bool {
        matches!(self, Item::Send { .. } | Item::Immediate | Item::WriteImmediate)
    }

    /// Returns whether it changes the peer's inbox.
    pub fn is_placed(self) -> bool {
        matches!(self, Item::Send { .. } | Item::Write | Item::WriteImmediate)
    }

    pub fn is_atomic(self) -> bool {
        matches!(self, Item::FetchAdd | Item::CmpSwap)
    }
}

pub struct Options {
    pub role: End,
    pub addr: SocketAddr,
    pub scenario: String,
    pub seed: u64,
    pub connections: u64,
    pub request: u64,
    pub reply: u64,
    pub grow: bool,
    pub reads: u16,
    pub revision: Revision,
    pub timeout: Duration,
    /// Time for which a silent peer is not asked whether it is there.
    pub idle: Duration,
    pub crc: bool,
    pub markers: bool,
    pub peer_to_peer: bool,
    pub rtr: RtrSet,
    pub port_mapper: PortMapper,
    /// FPDUs longer than TCP segments are asked for; and whether the peer has to agree.
    pub large: Option<bool>,
    /// The source is a region over a file.
    pub file: bool,
    pub ops: Vec<Item>,
    pub count: usize,
    pub size: usize,
    pub by: Vec<End>,
    pub close: End,
    pub abort: bool,
    pub wait: Duration,
    pub kind: String,
    pub terminate: Option<u16>,
}

/// The keys that were given, each to be taken once.
struct Keys(HashMap<String, String>);

impl Keys {
    fn take<T>(&mut self, key: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        match self.0.remove(key) {
            None => Ok(default),
            Some(value) => parse(&value).ok_or_else(|| format!("{key}={value}: not a value of this key")),
        }
    }

    fn number<T: FromStr>(&mut self, key: &str, default: T) -> Result<T, String> {
        self.take(key, default, |value| value.parse().ok())
    }

    fn switch(&mut self, key: &str, default: bool) -> Result<bool, String> {
        self.take(key, default, |value| one_of(value, &[("on", true), ("off", false)]))
    }
}

fn one_of<T: Clone>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| choice.clone())
}

fn end(value: &str) -> Option<End> {
    one_of(value, &[("active", End::Active), ("passive", End::Passive)])
}

fn item(value: &str) -> Option<Item> {
    let send = |solicited, invalidate| Item::Send { solicited, invalidate };
    let names = [
        ("send", send(false, false)),
        ("send-se", send(true, false)),
        ("send-inv", send(false, true)),
        ("send-se-inv", send(true, true)),
        ("write", Item::Write),
        ("read", Item::Read),
        ("imm", Item::Immediate),
        ("write-imm", Item::WriteImmediate),
        ("fetch-add", Item::FetchAdd),
        ("cmp-swap", Item::CmpSwap),
    ];
    one_of(value, &names)
}

fn rtr(value: &str) -> Option<RtrSet> {
    let none = RtrSet { send: false, write: false, read: false };
    let sets = [
        ("read", RtrSet { read: true, ..none }),
        ("write", RtrSet { write: true, ..none }),
        ("send", RtrSet { send: true, ..none }),
    ];
    one_of(value, &sets)
}

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{what} is missing"));
        let role = end(&next("active or passive")?).ok_or("the first argument is active or passive")?;
        let address: IpAddr = next("ADDRESS")?.parse().map_err(|error| format!("ADDRESS: {error}"))?;
        let port: u16 = next("PORT")?.parse().map_err(|error| format!("PORT: {error}"))?;
        let scenario = next("SCENARIO")?;
        if !["transfer", "reject", "refused", "fault", "lost"].contains(&scenario.as_str()) {
            return Err(format!("no scenario {scenario}"));
        }
        let mut keys = HashMap::new();
        for argument in arguments {
            let (key, value) =
                argument.split_once('=').ok_or_else(|| format!("{argument} is no KEY=VALUE"))?;
            keys.insert(key.to_owned(), value.to_owned());
        }
        let mut keys = Keys(keys);
        let both = vec![End::Active, End::Passive];
        let by = [("active", vec![End::Active]), ("passive", vec![End::Passive]), ("both", both)];
        let options = Options {
            role,
            addr: SocketAddr::new(address, port),
            scenario,
            seed: keys.number("seed", 1)?,
            connections: keys.number("connections", 1)?,
            request: keys.number("request", 0)?,
            reply: keys.number("reply", 0)?,
            grow: keys.take("private", false, |value| one_of(value, &[("fixed", false), ("grow", true)]))?,
            reads: keys.number("reads", 4)?,
            revision: keys.take("revision", Revision::Two, |value| {
                one_of(value, &[("1", Revision::One), ("2", Revision::Two)])
            })?,
            timeout: Duration::from_secs(keys.number("timeout", 20)?),
            idle: Duration::from_secs(keys.number("idle", 60)?),
            crc: keys.switch("crc", true)?,
            markers: keys.switch("markers", false)?,
            peer_to_peer: keys.switch("p2p", true)?,
            rtr: keys.take("rtr", ConnectOptions::default().rtr, rtr)?,
            port_mapper: keys.take("mapper", PortMapper::Off, |value| {
                one_of(value, &[("on", PortMapper::Auto), ("off", PortMapper::Off)])
            })?,
            large: keys.take("large", None, |value| {
                one_of(value, &[("agreed", Some(true)), ("asked", Some(false)), ("off", None)])
            })?,
            file: keys.take("source", false, |value| one_of(value, &[("file", true), ("memory", false)]))?,
            ops: keys.take("ops", Vec::new(), |value| value.split(',').map(item).collect())?,
            count: keys.number("count", 1)?,
            size: keys.take("size", None, |value| value.parse().ok().map(Some))?.unwrap_or(0),
            by: keys.take("by", vec![End::Active], |value| one_of(value, &by))?,
            close: keys.take("close", End::Active, end)?,
            abort: keys.take("how", false, |value| one_of(value, &[("graceful", false), ("abort", true)]))?,
            wait: Duration::from_secs(keys.number("wait", 3)?),
            kind: keys.take("kind", String::new(), |value| Some(value.to_owned()))?,
            terminate: keys.take("terminate", None, |value| {
                u16::from_str_radix(value.strip_prefix("0x")?, 16).ok().map(Some)
            })?,
        };
        // An option of the guest's end, which tells how this one writes a Terminate.
        keys.take("order", (), |value| one_of(value, &[("rfc", ()), ("siw", ())]))?;
        match keys.0.into_keys().next() {
            Some(key) => Err(format!("no key {key}")),
            None => Ok(options),
        }
    }

    pub fn items(&self) -> usize {
        self.count * self.ops.len()
    }

    pub fn item(&self, k: usize) -> Item {
        self.ops[k % self.ops.len()]
    }

    pub fn does(&self, end: End) -> bool {
        self.by.contains(&end)
    }

    /// Returns the number of items of `end` that complete a receive.
    pub fn received_of(&self, end: End) -> usize {
        if !self.does(end) {
            return 0;
        }
        (0..self.items()).filter(|&k| self.item(k).is_received()).count()
    }

    /// Octets of private data in Request and Reply of this connection.
    pub fn private_lengths(&self, connection: u64) -> (usize, usize) {
        let of = |wanted: u64| if self.grow { wanted.min(connection) } else { wanted } as usize;
        (of(self.request), of(self.reply))
    }

    pub fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            revision: self.revision,
            fall_back: false,
            crc: self.crc,
            markers: self.markers,
            ird: self.reads,
            ord: self.reads,
            peer_to_peer: self.peer_to_peer,
            rtr: self.rtr,
            // A passive end registers its memory between Request and Reply.
            timeout: self.timeout / 4,
            port_mapper: self.port_mapper,
            keepalive: Some(Keepalive { idle: self.idle, interval: self.idle / 6, probes: 6 }),
            large_fpdus: self.large.is_some(),
            ..Default::default()
        }
    }
}

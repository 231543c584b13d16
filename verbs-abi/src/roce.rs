//! Names of queue pairs that are joined by numbers, as on RoCE: an address for the GID, a TCP port
//! and a place for the number, and a hello by which both ends know each other.
//!
//! The wire is private: iWARP over TCP, whose MPA Request has the hello as its private data, and on
//! which either end acknowledges what it has executed. No RoCE adapter understands it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The name of a queue pair, by which its peer finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) address: IpAddr,
    /// The TCP port at which its process listens, and its place there: `port << 8 | place`.
    pub(crate) number: u32,
}

impl Name {
    /// Returns the name that a GID and a number are. `None` where the GID is no host's.
    pub(crate) fn of(gid: [u8; 16], number: u32) -> Option<Name> {
        let address = Ipv6Addr::from(gid).to_canonical();
        let is_host = !address.is_unspecified() && !address.is_multicast();
        (is_host && number >> 24 == 0 && number >> 8 != 0).then_some(Name { address, number })
    }

    /// Returns the address at which its process listens.
    pub(crate) fn listens_at(self) -> SocketAddr {
        SocketAddr::from((self.address, (self.number >> 8) as u16))
    }
}

/// Numbers of one port, given again as late as possible: who has an old one and dials it finds
/// nobody for a while.
#[derive(Debug)]
pub(crate) struct Places(VecDeque<u8>);

impl Places {
    pub(crate) fn new() -> Self {
        Places((0..=u8::MAX).collect())
    }

    pub(crate) fn take(&mut self) -> Option<u8> {
        self.0.pop_front()
    }

    pub(crate) fn give_back(&mut self, place: u8) {
        self.0.push_back(place);
    }
}

/// The words of the end that connects: who it is, and whom it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The sequence number with which the requests of this end begin.
    pub(crate) sends: Psn,
    /// Sequence number with which it expects the peer's to begin.
    pub(crate) expects: Psn,
}

/// The sequence number of a packet, of 24 bits (InfiniBand Architecture §9.2). The wire numbers
/// nothing by them: the first ones of both ends are compared when these are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Psn(u32);

impl Psn {
    pub(crate) fn new(number: u32) -> Self {
        Psn(number & 0xff_ffff)
    }
}

/// The version of the hello, and of all behind it.
const VERSION: [u8; 4] = *b"rdq\x04";

impl Hello {
    pub(crate) fn to_octets(self) -> Vec<u8> {
        let words = [self.from, self.to, self.sends.0, self.expects.0];
        VERSION.into_iter().chain(words.iter().flat_map(|word| word.to_be_bytes())).collect()
    }

    /// Reads a hello; `None` if it is none, or of another version.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let (version, words) = octets.split_first_chunk::<4>()?;
        let ([from, to, sends, expects], []) = words.as_chunks::<4>() else { return None };
        let word = |octets: &[u8; 4]| u32::from_be_bytes(*octets);
        let psn = |octets| Psn(word(octets));
        let hello = Hello { from: word(from), to: word(to), sends: psn(sends), expects: psn(expects) };
        (*version == VERSION).then_some(hello)
    }
}

/// A peer whose hello is awaited: what the program has said of it, and of this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) own: Name,
    pub(crate) peer: Name,
    /// The sequence number with which the peer's requests begin (RTR).
    pub(crate) expects: Psn,
    /// Sequence number with which those of this end begin (RTS).
    pub(crate) sends: Option<Psn>,
    /// Set where these are compared, as on an adapter all but UC does.
    pub(crate) compares: bool,
}

impl Awaited {
    /// Returns the hello of this end, which says it all.
    pub(crate) fn hello(&self, sends: Psn) -> Hello {
        Hello { from: self.own.number, to: self.peer.number, sends, expects: self.expects }
    }

    /// Returns whether a hello that came from this address names both ends as the program did.
    pub(crate) fn is_of_peer(&self, hello: &Hello, from: IpAddr) -> bool {
        (hello.from, hello.to, from) == (self.peer.number, self.own.number, self.peer.address)
    }

    /// Returns whether the first sequence numbers are those of the program, as far as it has said.
    pub(crate) fn has_psns(&self, hello: &Hello) -> bool {
        !self.compares || hello.sends == self.expects && self.sends.is_none_or(|sends| sends == hello.expects)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_hello_is_read_whole_or_not_at_all() {
        let hello = Hello { from: 0x12_3456, to: 0x65_4321, sends: Psn(7), expects: Psn(8) };
        let octets = hello.to_octets();
        assert_eq!(Hello::parse(&octets), Some(hello));
        for len in 0..octets.len() {
            assert_eq!(Hello::parse(&octets[..len]), None);
        }
        assert_eq!(Hello::parse(&[&octets[..], &[0]].concat()), None);
        assert_eq!(Hello::parse(&[b"rdq\x03", &octets[4..]].concat()), None);
    }

    #[test]
    fn a_hello_has_to_fit_what_the_program_has_said() {
        let peer = Name { address: Ipv4Addr::LOCALHOST.into(), number: 0x12_3456 };
        let own = Name { number: 0x65_4321, ..peer };
        let at_rtr = Awaited { own, peer, expects: Psn::new(7), sends: None, compares: true };
        let at_rts = Awaited { sends: Some(Psn::new(0xff00_0008)), ..at_rtr };
        let hello = Hello { from: peer.number, to: own.number, sends: Psn(7), expects: Psn(8) };
        for awaited in [at_rtr, at_rts] {
            assert!(awaited.is_of_peer(&hello, peer.address) && awaited.has_psns(&hello));
            assert!(!awaited.has_psns(&Hello { sends: Psn(8), ..hello }));
            for stranger in [Hello { from: 0x12_3457, ..hello }, Hello { to: 0x65_4322, ..hello }] {
                assert!(!awaited.is_of_peer(&stranger, peer.address));
            }
            assert!(!awaited.is_of_peer(&hello, Ipv4Addr::new(127, 0, 0, 2).into()));
        }
        let other = Hello { expects: Psn(9), ..hello };
        assert!(at_rtr.has_psns(&other) && !at_rts.has_psns(&other));
        assert!(Awaited { compares: false, ..at_rts }.has_psns(&other), "UC");
    }

    #[test]
    fn a_name_is_an_address_and_a_port() {
        let gid = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        let name = Name::of(gid, 0x12_3456).unwrap();
        assert_eq!(name.listens_at(), "192.0.2.1:4660".parse().unwrap());
        assert_eq!(Name::of([0; 16], 0x12_3456), None);
        assert_eq!([Name::of(gid, 1), Name::of(gid, 0x100_0000)], [None; 2], "no port, and 25 bits");
    }

    #[test]
    fn a_number_comes_again_as_late_as_possible() {
        let mut places = Places::new();
        let first = places.take().unwrap();
        places.give_back(first);
        let until: Vec<u8> =
            std::iter::from_fn(|| places.take()).take_while(|place| *place != first).collect();
        assert_eq!(until.len(), 255);
    }
}

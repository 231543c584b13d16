//! Two ends of a byte stream, over a TCP that takes what it likes and delivers it in pieces. The
//! fuzzer uses them, too.

use std::collections::VecDeque;

use rddp_octets::{Agreed, Duplex, Handshake, HandshakeOptions, Progress};
use rddp_test_support::pattern_from;

/// Returns what both ends agree on, the initiator's first.
pub(crate) fn agreed([active, passive]: [HandshakeOptions; 2]) -> [Agreed; 2] {
    let mut initiator = Handshake::initiator(active, b"").unwrap();
    let Progress::Asked(asked) = Handshake::responder(passive).step(initiator.request()) else {
        panic!("a Request")
    };
    let (reply, passive) = asked.accept(b"").unwrap();
    match initiator.step(&reply) {
        Progress::Accepted { agreed, used, .. } if used == reply.len() => [agreed, passive],
        other => panic!("{other:?}"),
    }
}

/// Returns options that ask for CRCs and markers.
pub(crate) fn options(crc: bool, markers: bool) -> HandshakeOptions {
    let mut options = HandshakeOptions::default();
    (options.startup.crc, options.startup.markers) = (crc, markers);
    options
}

/// An end, and the octets on the way to it.
pub(crate) struct Side {
    pub(crate) duplex: Duplex,
    /// Octets of a pattern that it has put, and those of the peer's that it has taken.
    pub(crate) put: usize,
    pub(crate) taken: usize,
    pub(crate) wire: VecDeque<u8>,
    /// True once the peer has closed behind the wire, which takes no more.
    pub(crate) closed: bool,
    /// True if any octets may come.
    pub(crate) lenient: bool,
    /// True once it was told to close.
    shut: bool,
}

impl Side {
    pub(crate) fn new(agreed: &Agreed) -> Self {
        let duplex = Duplex::new(agreed);
        let wire = VecDeque::new();
        Self { duplex, put: 0, taken: 0, wire, closed: false, lenient: false, shut: false }
    }

    /// Puts the next octets of the pattern.
    pub(crate) fn put(&mut self, octets: usize) {
        self.put += self.duplex.put(&pattern_from(self.put, octets));
        self.check_end();
    }

    /// Gives TCP what is owed, but for more than so many octets.
    pub(crate) fn pay(&mut self, peer: &mut Self, octets: usize) {
        let count = octets.min(self.duplex.owed().len());
        if !peer.closed {
            peer.wire.extend(&self.duplex.owed()[..count]);
        }
        self.duplex.paid(count);
        self.check_end();
        peer.closed |= self.shut;
    }

    /// Gets at most so many octets of TCP, or its end.
    pub(crate) fn deliver(&mut self, octets: usize) {
        let space = self.duplex.space();
        let count = octets.min(space.len()).min(self.wire.len());
        for (octet, arrived) in space.iter_mut().zip(self.wire.drain(..count)) {
            *octet = arrived;
        }
        if count > 0 || self.closed && self.wire.is_empty() {
            self.duplex.filled(count);
        }
        self.check_end();
    }

    /// Takes octets of the peer, which are those that it has put.
    pub(crate) fn take(&mut self, room: usize) {
        let mut octets = vec![0; room];
        let count = self.duplex.take(&mut octets);
        let are_put = self.lenient || octets[..count] == pattern_from(self.taken, count);
        assert!(are_put, "octets are not those that were put");
        self.taken += count;
        self.check_end();
    }

    /// Checks that nothing is owed any more where this end was told to close.
    fn check_end(&mut self) {
        self.shut |= self.duplex.is_finished();
        assert!(!self.shut || self.duplex.is_finished() && self.duplex.owed().is_empty());
    }
}

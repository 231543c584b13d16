//! Datagrams of IP made of fragments (RFC 791 §3.2, RFC 8200 §4.5).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, HashSet};

use etherparse::IpNumber;

use crate::ip::{Datagram, Fragment};
use crate::reorder::Reorder;

/// The fragments of datagrams that are not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    open: HashMap<Key, Pieces>,
    /// Datagrams that have become whole: what comes of them again may be copies.
    whole: HashSet<Key>,
    /// Fragments of datagrams that were given up.
    lost: usize,
}

/// The ends, the protocol and the number of a datagram.
type Key = ([IpAddr; 2], IpNumber, u32);

/// The fragments of one datagram.
#[derive(Debug)]
struct Pieces {
    begun: Duration,
    fragments: usize,
    order: Reorder,
    /// The payload as far as it is captured without a hole.
    payload: Vec<u8>,
    /// Octets behind it, captured or not, that come next.
    behind: u64,
    /// The length of the payload, once the last fragment has come.
    len: Option<u64>,
}

impl Fragments {
    /// Takes a fragment. Returns the payload of its datagram if that is whole now, and the number
    /// of octets behind it that were not captured.
    pub(crate) fn push(
        &mut self,
        time: Duration,
        datagram: &Datagram<'_>,
        fragment: Fragment,
    ) -> Option<(Vec<u8>, usize)> {
        let key = (datagram.ends, datagram.protocol, fragment.id);
        // Numbers are used again.
        if self.open.get(&key).is_some_and(|old| time.saturating_sub(old.begun) > LIFETIME) {
            self.lost += self.open.remove(&key).map_or(0, |old| old.fragments);
        }
        let pieces = self.open.entry(key).or_insert_with(|| Pieces::new(time));
        pieces.push(time, datagram, fragment);
        let len = pieces.len.filter(|len| pieces.payload.len() as u64 + pieces.behind >= *len)?;
        self.whole.insert(key);
        let mut payload = self.open.remove(&key)?.payload;
        payload.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        let cut = usize::try_from(len).unwrap_or(usize::MAX) - payload.len();
        Some((payload, cut))
    }

    /// Returns the number of fragments whose datagrams have not become whole.
    pub(crate) fn left(&self) -> usize {
        let open = self.open.iter().filter(|(key, _)| !self.whole.contains(key));
        self.lost + open.map(|(_, pieces)| pieces.fragments).sum::<usize>()
    }
}

impl Pieces {
    fn new(begun: Duration) -> Self {
        let order = Reorder::from(0);
        Self { begun, fragments: 0, order, payload: Vec::new(), behind: 0, len: None }
    }

    fn push(&mut self, time: Duration, datagram: &Datagram<'_>, fragment: Fragment) {
        self.fragments += 1;
        self.order.push(time, fragment.at, datagram.payload, datagram.cut);
        if fragment.is_last {
            self.len = Some(u64::from(fragment.at) + (datagram.payload.len() + datagram.cut) as u64);
        }
        while let Some(piece) = self.order.pop() {
            if self.behind == 0 {
                self.payload.extend(piece.octets);
            } else {
                self.behind += piece.octets.len() as u64;
            }
            self.behind += piece.cut;
        }
    }
}

/// The time within which the fragments of a datagram come (RFC 8200 §4.5).
const LIFETIME: Duration = Duration::from_secs(60);

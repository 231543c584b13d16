//! Counts of connections that have not finished their startup, by peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The number of connections in one part of their startup, of the whole device and of each peer.
/// RFC 5042 §6.4.2: peers must not be able to use up this end's memory and sockets.
#[derive(Debug)]
pub(crate) struct PeerCount {
    max: usize,
    max_per_peer: usize,
    count: Mutex<(usize, HashMap<Origin, usize>)>,
}

/// The origin that a connection is counted with: an IPv4 address, or the network of an IPv6
/// address, since one host may have all 2^64 addresses of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Origin {
    fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(addr) => Origin::V4(addr),
            IpAddr::V6(addr) => {
                let [a, b, c, d, ..] = addr.segments();
                Origin::V6([a, b, c, d])
            }
        }
    }
}

impl PeerCount {
    pub(crate) fn new(max: usize, max_per_peer: usize) -> Arc<Self> {
        Arc::new(PeerCount { max, max_per_peer, count: Mutex::default() })
    }

    /// Counts one connection more. Returns `None` where there are too many already.
    pub(super) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Counted> {
        self.take_of(peer.map(Origin::of))
    }

    /// Counts a connection here that is counted elsewhere. Returns `None` where there are too many
    /// already.
    pub(super) fn take_like(self: &Arc<Self>, counted: &Counted) -> Option<Counted> {
        self.take_of(counted.peer)
    }

    fn take_of(self: &Arc<Self>, peer: Option<Origin>) -> Option<Counted> {
        let mut count = self.count.lock();
        if count.0 >= self.max {
            return None;
        }
        if let Some(peer) = peer {
            let of_peer = count.1.entry(peer).or_default();
            if *of_peer >= self.max_per_peer {
                return None;
            }
            *of_peer += 1;
        }
        count.0 += 1;
        Some(Counted { count: self.clone(), peer })
    }

    /// Returns the origin that has the most connections, one of which has to go before another can
    /// come from `peer`: that of `peer`, where it has as many as it may. `None` where no origin has
    /// any.
    pub(super) fn crowd(&self, peer: Option<IpAddr>) -> Option<Origin> {
        let count = self.count.lock();
        let is_full = |peer: &Origin| count.1.get(peer).is_some_and(|of_peer| *of_peer >= self.max_per_peer);
        let most = || count.1.iter().max_by_key(|(_, of_peer)| **of_peer).map(|(peer, _)| *peer);
        peer.map(Origin::of).filter(is_full).or_else(most)
    }

    fn give(&self, peer: Option<Origin>) {
        let mut count = self.count.lock();
        count.0 = count.0.saturating_sub(1);
        if let Some(peer) = peer
            && let Some(of_peer) = count.1.get_mut(&peer)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                count.1.remove(&peer);
            }
        }
    }
}

/// A counted connection. Dropping it takes it off the count.
#[derive(Debug)]
pub(crate) struct Counted {
    count: Arc<PeerCount>,
    peer: Option<Origin>,
}

impl Counted {
    /// Returns whether the connection is counted here, with this origin.
    pub(super) fn is_of(&self, count: &Arc<PeerCount>, origin: Origin) -> bool {
        Arc::ptr_eq(&self.count, count) && self.peer == Some(origin)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.give(self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5042 §6.4.2: a host in a /64 network can have as many addresses as it likes.
    #[test]
    fn half_open_connections_are_counted_by_network_in_ipv6() {
        let count = PeerCount::new(1024, 2);
        let take = |peer: &str| count.take(Some(peer.parse().unwrap()));
        let first = take("2001:db8:0:1::1");
        let second = take("2001:db8:0:1:ffff::2");
        assert!(first.is_some() && second.is_some());
        assert!(take("2001:db8:0:1::3").is_none(), "the same /64");
        assert!(take("2001:db8:0:2::1").is_some(), "another");
        drop(first);
        assert!(take("2001:db8:0:1::3").is_some());
        let mapped = [take("::ffff:192.0.2.1"), take("192.0.2.1")];
        assert!(mapped.iter().all(Option::is_some) && take("192.0.2.1").is_none(), "one address");
        assert!(take("192.0.2.2").is_some() && take("::ffff:192.0.2.3").is_some());
    }
}

//! How many clients a server has at a time, and how many of them from one network, so that no host
//! takes all places.
//!
//! Where places are short, a client that moves next to nothing makes room for another. Until its
//! thread has ended it is counted apart, with the same limits: there are two threads for each place
//! at most.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Octets a second that a client has to move to be sure of its place.
pub(crate) const SLOW: u64 = 4096;

/// Longest time over which that is measured.
const WINDOW: Duration = Duration::from_secs(60);

pub(crate) struct Places {
    most: usize,
    window: Duration,
    /// All clients that have not ended, with those that have lost their place.
    taken: Mutex<Vec<Taken>>,
}

struct Taken {
    /// `None` for those whose address is not known: they count as of one network.
    network: Option<IpAddr>,
    meter: Arc<Meter>,
}

/// A client's place; free again when it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    meter: Arc<Meter>,
}

impl Places {
    /// Makes `most` places, half of them (rounded up) for one network. Clients that move less than
    /// [`SLOW`] for as long as `window`, at most a minute, make room for others; `None`: none has
    /// to.
    pub(crate) fn new(most: usize, window: Option<Duration>) -> Self {
        Places {
            most,
            window: window.map_or(Duration::MAX, |window| window.min(WINDOW)),
            taken: Mutex::default(),
        }
    }

    /// Takes a place, from another client if need be; `None` where that is not possible.
    pub(crate) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Place> {
        let network = peer.map(network);
        let mut taken = self.taken();
        let [of_network, of_all] = self.are_full(&taken, network, false);
        if of_network || of_all {
            let [leaving_of_network, leaving_of_all] = self.are_full(&taken, network, true);
            if leaving_of_all || of_network && leaving_of_network {
                return None;
            }
            let may_go = |other: &Taken| !of_network || other.network == network;
            slowest(&taken, may_go)?.meter.state().is_over = true;
        }
        let meter = Arc::new(Meter::new(self.window));
        taken.push(Taken { network, meter: meter.clone() });
        Some(Place { places: self.clone(), meter })
    }

    /// Returns whether a network's share and whether all are used up: by clients that have a place,
    /// or (`is_over`) by those that have lost theirs.
    fn are_full(&self, taken: &[Taken], network: Option<IpAddr>, is_over: bool) -> [bool; 2] {
        let counted = taken.iter().filter(|other| other.meter.is_over() == is_over);
        let of_network = counted.clone().filter(|other| other.network == network).count();
        [of_network >= self.most.div_ceil(2), counted.count() >= self.most]
    }

    /// Returns whether all clients have ended.
    pub(crate) fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slowest of those that are slow and have a place.
fn slowest(taken: &[Taken], may_go: impl Fn(&Taken) -> bool) -> Option<&Taken> {
    let rates = taken.iter().filter(|other| !other.meter.is_over() && may_go(other));
    let rates = rates.filter_map(|other| Some((other.meter.rate(Instant::now())?, other)));
    rates.min_by_key(|(rate, _)| *rate).filter(|(rate, _)| *rate < SLOW).map(|(_, other)| other)
}

/// The network that counts as one host: the IPv4 address, or the /64 of an IPv6 address.
fn network(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & (u128::MAX << 64))),
        addr @ IpAddr::V4(_) => addr,
    }
}

impl Place {
    /// Returns the meter that counts what this client moves.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        self.meter.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().retain(|other| !Arc::ptr_eq(&other.meter, &self.meter));
    }
}

/// How fast a client is.
pub(crate) struct Meter {
    window: Duration,
    state: Mutex<State>,
}

struct State {
    /// When this window began, and the octets since.
    since: Instant,
    octets: u64,
    /// Octets a second of the window before.
    rate: Option<u64>,
    is_over: bool,
}

impl Meter {
    fn new(window: Duration) -> Self {
        let state = State { since: Instant::now(), octets: 0, rate: None, is_over: false };
        Meter { window, state: Mutex::new(state) }
    }

    /// Counts octets that have moved, or that were worked on for the client.
    pub(crate) fn moved(&self, octets: u64) {
        let now = Instant::now();
        let rate = self.rate(now);
        let mut state = self.state();
        if now - state.since >= self.window {
            (state.since, state.octets, state.rate) = (now, 0, rate);
        }
        state.octets += octets;
    }

    /// Returns whether the client has lost its place to another.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Octets a second over at least one window; `None` for a client that has not been there for so
    /// long.
    fn rate(&self, now: Instant) -> Option<u64> {
        let state = self.state();
        let elapsed = now.saturating_duration_since(state.since);
        if elapsed < self.window {
            state.rate
        } else {
            Some((state.octets as f64 / elapsed.as_secs_f64()) as u64)
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];

    fn host(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn one_address_gets_half_of_the_places() {
        let places = Arc::new(Places::new(3, None));
        let [one, two, three] = HOSTS.map(host);
        let first = [places.take(one), places.take(one)];
        assert!(first.iter().all(Option::is_some) && places.take(one).is_none());
        let second = places.take(two);
        assert!(second.is_some() && places.take(three).is_none());
        drop(first);
        assert!(places.take(one).is_some() && !places.are_free());
        drop(second);
        assert!(places.are_free());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one() {
        let places = Arc::new(Places::new(4, None));
        let taken = ["2001:db8::1", "2001:db8::ffff:2"].map(|addr| places.take(host(addr)));
        assert!(taken.iter().all(Option::is_some));
        assert!(places.take(host("2001:db8:0:0:1::")).is_none());
        assert!(places.take(host("2001:db8:0:1::")).is_some());
        let mapped = ["192.0.2.1", "::ffff:192.0.2.1"].map(|addr| places.take(host(addr)));
        assert!(mapped.iter().all(Option::is_some) && places.take(host("192.0.2.1")).is_none());
    }

    #[test]
    fn the_slowest_of_the_slow_makes_room() {
        let [one, two, three] = HOSTS.map(host);
        // A window of nothing is always over.
        let places = Arc::new(Places::new(2, Some(Duration::ZERO)));
        let [slow, slower] = [one, two].map(|host| places.take(host).unwrap());
        let begun = |place: &Place, octets| {
            let mut state = place.meter.state();
            (state.since, state.octets) = (Instant::now() - Duration::from_secs(100), octets);
        };
        begun(&slow, 100 * SLOW - 100);
        begun(&slower, 5);
        let next = places.take(three).unwrap();
        assert!(slower.meter().is_over() && !slow.meter().is_over() && !next.meter().is_over());
        begun(&slow, 100 * SLOW + 1000);
        begun(&next, 100 * SLOW + 1000);
        assert!(places.take(two).is_none());
        // Whoever has lost its place has none to give back.
        drop(slower);
        assert!(places.take(two).is_none());
        drop(slow);
        assert!(places.take(two).is_some());
    }

    #[test]
    fn a_crowd_from_one_address_makes_room_among_itself_only() {
        let [one, two, _] = HOSTS.map(host);
        let places = Arc::new(Places::new(2, Some(Duration::ZERO)));
        let [fast, slow] = [one, two].map(|host| places.take(host).unwrap());
        for (place, octets) in [(&fast, 1000 * SLOW), (&slow, 0)] {
            let mut state = place.meter.state();
            (state.since, state.octets) = (Instant::now() - Duration::from_secs(100), octets);
        }
        assert!(places.take(one).is_none() && !slow.meter().is_over());
    }

    #[test]
    fn who_has_lost_its_place_is_counted_until_it_has_ended() {
        let [one, two, three] = HOSTS.map(host);
        // All are slow at once.
        let places = Arc::new(Places::new(2, Some(Duration::ZERO)));
        let first = [one, two].map(|host| places.take(host).unwrap());
        // A network pushes out its share of its own,
        let mut later = vec![places.take(one).unwrap()];
        assert!(first[0].meter().is_over() && !first[1].meter().is_over());
        assert!(places.take(one).is_none() && !later[0].meter().is_over());
        // and all together push out as many as there are places.
        later.push(places.take(three).unwrap());
        assert!(places.take(three).is_none() && places.taken().len() == 4);
        drop(first);
        later.push(places.take(three).unwrap());
        drop(later);
        assert!(places.are_free());
    }

    #[test]
    fn who_has_just_come_is_not_slow() {
        let places = Arc::new(Places::new(1, Some(WINDOW)));
        let place = places.take(None).unwrap();
        assert!(places.take(None).is_none());
        place.meter().moved(1);
        assert!(places.take(None).is_none() && !place.meter().is_over());
    }
}

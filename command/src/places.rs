//! A server's limits: how many clients it has at a time, and how many of them from one network, so
//! that one host cannot occupy all places.
//!
//! Where places are short, a client that moves next to nothing loses its place to another. Until
//! its thread has ended, such a client is counted separately, with the same limits: there are at
//! most two threads for each place.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Octets a second that a client has to move to be sure of its place.
pub const SLOW: u64 = 4096;

/// The reason for which a client is turned away that may come back.
pub const TOO_MANY: &str = "too many clients at the moment";

/// The longest time over which a client's rate is measured.
const WINDOW: Duration = Duration::from_secs(60);

/// The places of a server, and who has them.
pub struct Places {
    most: usize,
    window: Duration,
    /// All clients whose threads have not ended, including those that have lost their place.
    taken: Mutex<Vec<Taken>>,
}

struct Taken {
    /// The client's network. `None` if the address is not known: such clients count as one network.
    network: Option<IpAddr>,
    meter: Arc<Meter>,
}

/// A client's place; it becomes free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    meter: Arc<Meter>,
}

impl Places {
    /// Makes `most` places, half of them (rounded up) for one network. A client that moves less
    /// than [`SLOW`] over `window` (at most a minute) can lose its place to another; with `None`,
    /// no client does.
    pub fn new(most: usize, window: Option<Duration>) -> Self {
        Places {
            most,
            window: window.map_or(Duration::MAX, |window| window.min(WINDOW)),
            taken: Mutex::default(),
        }
    }

    /// Takes a place, from another client if necessary; `None` where that is not possible.
    pub fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Place> {
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

    /// Returns whether all places of a network, and whether all places of the server, are taken: by
    /// clients that have a place, or (`is_over`) by clients that have lost theirs.
    fn are_full(&self, taken: &[Taken], network: Option<IpAddr>, is_over: bool) -> [bool; 2] {
        let counted = taken.iter().filter(|other| other.meter.is_over() == is_over);
        let of_network = counted.clone().filter(|other| other.network == network).count();
        [of_network >= self.most.div_ceil(2), counted.count() >= self.most]
    }

    /// Returns whether all clients have ended.
    pub fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the slowest client, out of those that have a place and can lose it.
fn slowest(taken: &[Taken], may_go: impl Fn(&Taken) -> bool) -> Option<&Taken> {
    let rates = taken.iter().filter(|other| !other.meter.is_over() && may_go(other));
    let rates = rates.filter_map(|other| Some((other.meter.rate(Instant::now())?, other)));
    rates.min_by_key(|(rate, _)| *rate).filter(|(rate, _)| *rate < SLOW).map(|(_, other)| other)
}

/// Returns the network that counts as one host: the IPv4 address, or the /64 of an IPv6 address.
pub fn network(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & (u128::MAX << 64))),
        addr @ IpAddr::V4(_) => addr,
    }
}

impl Place {
    /// Returns the meter that counts what this client moves.
    pub fn meter(&self) -> Arc<Meter> {
        self.meter.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().retain(|other| !Arc::ptr_eq(&other.meter, &self.meter));
    }
}

/// A measurement of the rate at which a client moves octets.
pub struct Meter {
    window: Duration,
    state: Mutex<State>,
}

struct State {
    /// The time at which this window began.
    since: Instant,
    octets: u64,
    /// Octets a second in the window before.
    rate: Option<u64>,
    is_over: bool,
}

impl Meter {
    fn new(window: Duration) -> Self {
        let state = State { since: Instant::now(), octets: 0, rate: None, is_over: false };
        Meter { window, state: Mutex::new(state) }
    }

    /// Counts octets that have moved, or that were processed for the client.
    pub fn moved(&self, octets: u64) {
        let now = Instant::now();
        let rate = self.rate(now);
        let mut state = self.state();
        if now - state.since >= self.window {
            (state.since, state.octets, state.rate) = (now, 0, rate);
        }
        state.octets += octets;
    }

    /// Returns whether the client has lost its place to another.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Returns the octets a second over at least one window; `None` for a client that has not been
    /// there for that long.
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
        // A window of length zero is always over.
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
        // A client that has lost its place has none to give back.
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
    fn a_client_that_lost_its_place_is_counted_until_it_has_ended() {
        let [one, two, three] = HOSTS.map(host);
        // All clients become slow at the same time.
        let places = Arc::new(Places::new(2, Some(Duration::ZERO)));
        let first = [one, two].map(|host| places.take(host).unwrap());
        // Clients of a network can take the places of as many others as the network may have,
        let mut later = vec![places.take(one).unwrap()];
        assert!(first[0].meter().is_over() && !first[1].meter().is_over());
        assert!(places.take(one).is_none() && !later[0].meter().is_over());
        // and all clients together those of as many others as there are places.
        later.push(places.take(three).unwrap());
        assert!(places.take(three).is_none() && places.taken().len() == 4);
        drop(first);
        later.push(places.take(three).unwrap());
        drop(later);
        assert!(places.are_free());
    }

    #[test]
    fn a_new_client_does_not_count_as_slow() {
        let places = Arc::new(Places::new(1, Some(WINDOW)));
        let place = places.take(None).unwrap();
        assert!(places.take(None).is_none());
        place.meter().moved(1);
        assert!(places.take(None).is_none() && !place.meter().is_over());
    }
}

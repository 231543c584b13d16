//! Clients that have asked for nothing yet, or have not proven that they have the token.
//!
//! They take no place from others (`places`), and have seconds, whatever `--idle` says, as sshd's
//! `LoginGraceTime`. There are at most so many of them, as by its `MaxStartups`; but it is not the
//! newcomer that goes where there are more: it is the oldest from the address that has the most, so
//! that nobody is kept out by silent connections of others.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rddp_command::failure::{Failure, FailureKind};
use rddp_command::places::network;

/// Time that a client has until its request has come, with the proof that it has the token.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Clients without a place at a time, and those that are on their way out.
const MOST: usize = 64;
const MOST_LEAVING: usize = 4 * MOST;

pub(super) struct Startups {
    grace: Duration,
    /// The oldest first.
    list: Mutex<Vec<Arc<Startup>>>,
}

/// A client that has no place yet.
pub(crate) struct Startup {
    network: Option<IpAddr>,
    until: Instant,
    grace: Duration,
    is_over: AtomicBool,
}

/// A client's entry in the list of those without a place, until this is dropped.
pub(super) struct Entry {
    startups: Arc<Startups>,
    startup: Arc<Startup>,
}

impl Startups {
    /// Clients have [`GRACE`], or less where a client may not be silent for so long.
    pub(super) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Startups { grace: GRACE.min(idle), list: Mutex::default() })
    }

    /// Takes a client in; `None` if too many are on their way out.
    pub(super) fn enter(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Entry> {
        let mut list = self.list();
        let leaving = list.iter().filter(|other| other.is_over()).count();
        if list.len() - leaving >= MOST {
            if leaving >= MOST_LEAVING {
                return None;
            }
            oldest_of_the_crowd(&list)?.is_over.store(true, Ordering::Relaxed);
        }
        let startup = Arc::new(Startup {
            network: peer.map(network),
            until: Instant::now() + self.grace,
            grace: self.grace,
            is_over: AtomicBool::new(false),
        });
        list.push(startup.clone());
        Some(Entry { startups: self.clone(), startup })
    }

    pub(super) fn are_none(&self) -> bool {
        self.list().is_empty()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Startup>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the oldest client from the network that has the most.
fn oldest_of_the_crowd(list: &[Arc<Startup>]) -> Option<&Arc<Startup>> {
    let waiting = || list.iter().filter(|startup| !startup.is_over());
    let crowd = |startup: &&Arc<Startup>| waiting().filter(|other| other.network == startup.network).count();
    // Of several the last is taken, and the oldest is first.
    waiting().rev().max_by_key(crowd)
}

impl Startup {
    /// Fails if the client has to go.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_over() {
            return Err(turned_away("the client has asked for nothing, and others wait"));
        }
        if Instant::now() >= self.until {
            let seconds = self.grace.as_secs_f32();
            return Err(turned_away(&format!("the client has asked for nothing for {seconds} s")));
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The failure of a client that has to go before it has a place: those are many, so that they are
/// told of seldom; and one that was only slow may come back.
fn turned_away(cause: &str) -> Failure {
    Failure::new(FailureKind::TurnedAway, cause)
}

impl Entry {
    pub(super) fn startup(&self) -> Arc<Startup> {
        self.startup.clone()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.startups.list().retain(|other| !Arc::ptr_eq(other, &self.startup));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(startups: &Arc<Startups>, host: u8) -> Option<Entry> {
        startups.enter(Some(IpAddr::from([192, 0, 2, host])))
    }

    #[test]
    fn the_oldest_of_a_crowd_goes_and_never_a_newcomer() {
        let startups = Startups::new(GRACE);
        let alone = enter(&startups, 1).unwrap();
        let crowd: Vec<_> = (0..MOST - 1).map(|_| enter(&startups, 2).unwrap()).collect();
        assert!(crowd.iter().all(|entry| entry.startup.check().is_ok()));
        let later: Vec<_> = (0..3).map(|_| enter(&startups, 2).unwrap()).collect();
        let gone: Vec<_> = crowd.iter().map(|entry| entry.startup.check().is_err()).collect();
        assert!(gone[..3].iter().all(|gone| *gone) && !gone[3..].contains(&true), "{gone:?}");
        assert!(alone.startup.check().is_ok() && later.iter().all(|entry| entry.startup.check().is_ok()));
        drop((alone, crowd, later));
        assert!(startups.are_none());
    }

    #[test]
    fn those_that_go_are_counted_until_they_have_gone() {
        let startups = Startups::new(GRACE);
        let mut crowd: Vec<_> = (0..MOST + MOST_LEAVING).map(|_| enter(&startups, 1).unwrap()).collect();
        assert!(enter(&startups, 2).is_none());
        drop(crowd.remove(0));
        assert!(enter(&startups, 2).is_some());
    }

    #[test]
    fn nobody_has_longer_than_the_grace() {
        let entry = enter(&Startups::new(Duration::ZERO), 1).unwrap();
        assert!(entry.startup.check().unwrap_err().to_string().contains("asked for nothing"));
    }
}

//! `poll` and `ppoll`.

use std::time::Duration;

use libc::{POLLIN, pollfd};
use rddp_stream::{Errno, Patience};
use smallvec::SmallVec;

use super::edges::{Edges, Way};
use super::watched::Watched;
use crate::kinds;

/// The entries that are ours.
type Ours = SmallVec<[One; 4]>;

/// An entry that is ours.
struct One {
    /// Place in the list.
    place: usize,
    watched: Watched,
    /// The way in which the next sleep is for it.
    way: Way,
    /// Tag in the set of the wait, once it is registered there.
    tag: Option<u32>,
}

/// Waits until one of `fds` is ready, or `timeout` is over, and sets their `revents`. Returns how
/// many are ready.
///
/// `sleep` makes the kernel's call, for at most the given time.
///
/// # Errors
/// [`Errno::PLAIN`]: none of them is ours, and nothing has been done. Otherwise the error of
/// `sleep`.
pub fn poll(
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    mut sleep: impl FnMut(&mut [pollfd], Option<Duration>) -> Result<(), Errno>,
) -> Result<usize, Errno> {
    let mut ours = find(fds);
    if ours.is_empty() && kinds::progress_other_sockets().is_none() {
        return Err(Errno::PLAIN);
    }
    let patience = Patience::new(false, timeout);
    let mut asked: SmallVec<[pollfd; 64]> = SmallVec::from_slice(fds);
    let mut edges = Edges::default();
    loop {
        let others = kinds::progress_other_sockets();
        let nap =
            [prepare(&mut asked, fds, &mut ours, &mut edges, &patience), others].into_iter().flatten().min();
        let slept = sleep(&mut asked, nap);
        if slept.is_err() {
            ours.iter().for_each(|one| asked[one.place].revents = 0);
        }
        let before = ours.len();
        let is_over = slept.is_err() || patience.is_over();
        if slept.is_ok() {
            edges.collect();
            ours.retain(|one| update(one, &mut asked[one.place], fds[one.place], &mut edges));
        }
        let ready = asked.iter().filter(|entry| entry.revents != 0).count();
        // An entry that turned out to be another file must be asked for again.
        if ready > 0 || is_over && ours.len() == before {
            fds.iter_mut().zip(&asked).for_each(|(entry, asked)| entry.revents = asked.revents);
            return slept.map(|()| ready);
        }
    }
}

fn find(fds: &[pollfd]) -> Ours {
    let mut ours = Ours::new();
    for (place, entry) in fds.iter().enumerate() {
        if let Some(watched) = Watched::of(entry.fd) {
            ours.push(One { place, watched, way: Way::Level, tag: None });
        }
    }
    ours
}

/// Asks for the events that each socket of ours is interested in now. Returns how long to sleep at
/// most.
fn prepare(
    asked: &mut [pollfd],
    fds: &[pollfd],
    ours: &mut Ours,
    edges: &mut Edges,
    patience: &Patience,
) -> Option<Duration> {
    let mut nap = patience.left();
    for (asked, entry) in asked.iter_mut().zip(fds) {
        (asked.fd, asked.events) = (entry.fd, entry.events);
    }
    let mut has_number = false;
    for One { place, watched, way, tag } in ours {
        let want = fds[*place].events;
        asked[*place].events = watched.interest(want);
        *way = edges.way(watched, want, tag);
        if *way != Way::Level {
            // The first of these places has the number of the set, and the kernel passes over the
            // others.
            let number = edges.number().filter(|_| !has_number);
            has_number |= number.is_some();
            (asked[*place].fd, asked[*place].events) = (number.unwrap_or(-1), POLLIN);
        }
        nap = [nap, watched.deadline(want), way.longest()].into_iter().flatten().min();
    }
    nap
}

/// Sets the entry's `revents`. Returns whether it is still the same socket's.
fn update(one: &One, asked: &mut pollfd, entry: pollfd, edges: &mut Edges) -> bool {
    if one.way != Way::Level {
        asked.fd = entry.fd;
        asked.revents = edges.take(one.way, &one.watched, entry.events);
    }
    let must_recheck = one.way.must_recheck() || one.watched.deadline(entry.events).is_some();
    if asked.revents == 0 && !must_recheck {
        return true;
    }
    let revents = one.watched.current(asked.revents, entry.events);
    asked.revents = revents.unwrap_or(0);
    revents.is_some()
}

//! `poll` and `ppoll`.

use std::time::Duration;

use libc::{POLLIN, pollfd};
use rddp_stream::{Errno, Patience};
use smallvec::SmallVec;

use super::edges::Edges;
use super::one::One;
use crate::kinds;

/// The entries that are ours.
type Ours = SmallVec<[One; 4]>;

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
            ours.iter().for_each(|one| asked[one.at].revents = 0);
        }
        let before = ours.len();
        let is_over = slept.is_err() || patience.is_over();
        if slept.is_ok() {
            edges.collect();
            ours.retain(|one| {
                let asked = &mut asked[one.at];
                let told = one.told(&mut edges, asked.revents);
                asked.revents = told.unwrap_or(0);
                told.is_some()
            });
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
    fds.iter().enumerate().filter_map(|(place, entry)| One::of(entry.fd, place, entry.events)).collect()
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
    for one in ours {
        let level = one.prepare(edges, &mut nap);
        asked[one.at].events = level.unwrap_or(POLLIN);
        if level.is_none() {
            // The first of these places has the number of the set, and the kernel passes over the
            // others.
            let number = edges.number().filter(|_| !has_number);
            has_number |= number.is_some();
            asked[one.at].fd = number.unwrap_or(-1);
        }
    }
    nap
}

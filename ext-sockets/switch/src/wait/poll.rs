//! `poll` and `ppoll`.

use std::time::Duration;

use libc::pollfd;
use rddp_stream::{Errno, Patience};
use smallvec::SmallVec;

use super::watched::Watched;
use crate::kinds;

/// The entries that are ours, with their places.
type Ours = SmallVec<[(usize, Watched); 4]>;

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
    loop {
        let others = kinds::progress_other_sockets();
        let nap = [prepare(&mut asked, fds, &ours, &patience), others].into_iter().flatten().min();
        let slept = sleep(&mut asked, nap);
        if slept.is_err() {
            ours.iter().for_each(|(place, _)| asked[*place].revents = 0);
        }
        let before = ours.len();
        let is_over = slept.is_err() || patience.is_over();
        if slept.is_ok() {
            ours.retain(|(place, watched)| look(watched, &mut asked[*place], fds[*place]));
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
            ours.push((place, watched));
        }
    }
    ours
}

/// Asks for the events that each socket of ours is interested in now. Returns how long to sleep at
/// most.
fn prepare(asked: &mut [pollfd], fds: &[pollfd], ours: &Ours, patience: &Patience) -> Option<Duration> {
    let mut nap = patience.left();
    for (asked, entry) in asked.iter_mut().zip(fds) {
        asked.events = entry.events;
    }
    for (place, watched) in ours {
        asked[*place].events = watched.interest(fds[*place].events);
        nap = [nap, watched.deadline(fds[*place].events)].into_iter().flatten().min();
    }
    nap
}

/// Sets the entry's `revents`. Returns whether it is still the same socket's.
fn look(watched: &Watched, asked: &mut pollfd, entry: pollfd) -> bool {
    if asked.revents == 0 && watched.deadline(entry.events).is_none() {
        return true;
    }
    let revents = watched.look(asked.revents, entry.events);
    asked.revents = revents.unwrap_or(0);
    revents.is_some()
}

//! `select` and `pselect`.

use std::ffi::{c_int, c_short, c_ulong};
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM};
use rddp_stream::{Errno, Patience};
use smallvec::SmallVec;

use super::edges::Edges;
use super::one::One;
use crate::kinds;

/// An `fd_set` of any size.
pub type Bits = SmallVec<[c_ulong; 16]>;

const WORD: usize = c_ulong::BITS as usize;

/// The events to ask for in each set, which are also those that put a descriptor into its result:
/// for reading, for writing, exceptional.
const ASKS: [c_short; 3] = [POLLIN, POLLOUT, POLLPRI];
const TELLS: [c_short; 3] =
    [POLLIN | POLLRDNORM | POLLHUP | POLLERR, POLLOUT | POLLWRNORM | POLLERR, POLLPRI];

/// Waits until a descriptor in `sets` is ready, or `timeout` is over, and sets `sets` to the ready
/// ones. Returns how many bits are set, and how much of the time is left.
///
/// `sleep` makes the kernel's call, on so many numbers and for at most the given time.
///
/// # Errors
/// [`Errno::PLAIN`]: none of them is ours, and nothing has been done. Otherwise the error of
/// `sleep`.
pub fn select(
    count: usize,
    sets: &mut [Option<&mut [c_ulong]>; 3],
    timeout: Option<Duration>,
    mut sleep: impl FnMut(usize, &mut [Bits; 3], Option<Duration>) -> Result<(), Errno>,
) -> (Result<usize, Errno>, Option<Duration>) {
    let mut ours = find(count, sets);
    if ours.is_empty() && kinds::progress_other_sockets().is_none() {
        return (Err(Errno::PLAIN), timeout);
    }
    let patience = Patience::new(false, timeout);
    let mut edges = Edges::default();
    loop {
        let others = kinds::progress_other_sockets();
        let mut asked = sets.each_ref().map(|set| copy(set.as_deref(), count));
        let mut nap = [patience.left(), others].into_iter().flatten().min();
        let mut many = count;
        for one in &mut ours {
            let level = one.prepare(&mut edges, &mut nap);
            put(&mut asked, one.at, level.unwrap_or(0));
            if let Some(number) = edges.number().filter(|_| level.is_none()) {
                many = with_set(&mut asked, many, number as usize);
            }
        }
        let slept = sleep(many, &mut asked, nap);
        if let Err(error) = slept {
            return (Err(error), patience.left());
        }
        without_set(&mut asked, count, edges.number());
        edges.collect();
        let (before, is_over) = (ours.len(), patience.is_over());
        ours.retain(|one| update(one, &mut asked, &mut edges));
        let ready = asked.iter().flatten().map(|word| word.count_ones() as usize).sum();
        if ready > 0 || is_over && ours.len() == before {
            let given = sets.iter_mut().zip(&asked).filter_map(|(set, asked)| Some((set.as_mut()?, asked)));
            given.for_each(|(set, asked)| set.copy_from_slice(asked));
            return (Ok(ready), patience.left());
        }
    }
}

/// Puts the descriptor into the sets of its events. Returns whether it is still the same socket's.
fn update(one: &One, asked: &mut [Bits; 3], edges: &mut Edges) -> bool {
    let ready = events(|set| has(&asked[set], one.at));
    let revents = one.told(edges, ready);
    let told = revents.unwrap_or(0);
    let told = events(|set| one.want & ASKS[set] != 0 && told & TELLS[set] != 0);
    put(asked, one.at, told);
    revents.is_some()
}

fn find(count: usize, sets: &[Option<&mut [c_ulong]>; 3]) -> SmallVec<[One; 4]> {
    let mut ours = SmallVec::new();
    for place in 0..count.div_ceil(WORD) {
        let mut all = sets.iter().flatten().fold(0, |all, set| all | set[place]);
        while all != 0 {
            let fd = place * WORD + all.trailing_zeros() as usize;
            all &= all - 1;
            let want = events(|set| sets[set].as_deref().is_some_and(|set| has(set, fd)));
            if fd < count
                && let Some(one) = One::of(fd as c_int, fd, want)
                && (want != POLLPRI || one.tells_urgent())
            {
                ours.push(one);
            }
        }
    }
    ours
}

/// Puts the number of a set among those for reading. Returns how many numbers there are now.
fn with_set(asked: &mut [Bits; 3], count: usize, number: usize) -> usize {
    if number >= count {
        for set in asked.iter_mut() {
            // Behind the program's count its sets may have anything.
            if !count.is_multiple_of(WORD) {
                set[count / WORD] &= (1 << (count % WORD)) - 1;
            }
            set.resize(set.len().max(number / WORD + 1), 0);
        }
    }
    asked[0][number / WORD] |= 1 << (number % WORD);
    count.max(number + 1)
}

/// Makes the answer one on the program's `count` numbers.
fn without_set(asked: &mut [Bits; 3], count: usize, number: Option<c_int>) {
    if let Some(number) = number.map(|number| number as usize)
        && number < asked[0].len() * WORD
    {
        asked[0][number / WORD] &= !(1 << (number % WORD));
    }
    asked.iter_mut().for_each(|set| set.truncate(count.div_ceil(WORD)));
}

fn copy(set: Option<&[c_ulong]>, count: usize) -> Bits {
    set.map_or_else(|| SmallVec::from_elem(0, count.div_ceil(WORD)), SmallVec::from_slice)
}

fn events(is_in: impl Fn(usize) -> bool) -> c_short {
    (0..3).filter(|set| is_in(*set)).fold(0, |all, set| all | ASKS[set])
}

fn has(set: &[c_ulong], fd: usize) -> bool {
    set[fd / WORD] & 1 << (fd % WORD) != 0
}

/// Puts the descriptor into the sets that ask for one of `events`, and takes it out of the others.
fn put(sets: &mut [Bits; 3], fd: usize, events: c_short) {
    for (set, asks) in sets.iter_mut().zip(ASKS) {
        let bit = 1 << (fd % WORD);
        let word = &mut set[fd / WORD];
        *word = if events & asks != 0 { *word | bit } else { *word & !bit };
    }
}

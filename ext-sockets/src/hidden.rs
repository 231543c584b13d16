//! Descriptors of our own, which the program does not know of: `close` of one is `EBADF`, and `close_range` goes around them.
//!
//! A program that closes everything it finds would close them too, and then open something of its own under their numbers.

use std::ffi::{c_int, c_uint};
use std::iter::successors;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::next;

/// How many can be hidden; more are as visible as any.
const PLACES: usize = 256;

/// Numbers, plus 1; 0 is a free place.
static HIDDEN: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Hides a descriptor that was just made.
pub(crate) fn hide(fd: c_int) {
    COUNT.fetch_add(1, Ordering::AcqRel);
    let is_free =
        |place: &&AtomicI32| place.compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if HIDDEN.iter().find(is_free).is_none() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes one that was hidden.
pub(crate) fn close(fd: c_int) {
    show(fd);
    next::close_number(fd);
}

fn show(fd: c_int) {
    let was_here =
        |place: &&AtomicI32| place.compare_exchange(fd + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if HIDDEN.iter().find(was_here).is_some() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether there is any.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Whether this is one.
#[inline]
pub fn is_hidden(fd: c_int) -> bool {
    any() && fd >= 0 && HIDDEN.iter().any(|place| place.load(Ordering::Acquire) == fd + 1)
}

/// The numbers from `first` to `last` in ranges without those that are hidden. What is no range stays as it is.
pub fn around(first: c_uint, last: c_uint) -> impl Iterator<Item = (c_uint, c_uint)> {
    let range_from = move |first: c_uint| match next_hidden(first, last) {
        Some(hidden) => (first, hidden.checked_sub(1), Some(hidden)),
        None => (first, Some(last), None),
    };
    let ranges = successors(Some(range_from(first)), move |(_, _, hidden)| {
        let next = hidden.as_ref()?.checked_add(1)?;
        (next <= last).then(|| range_from(next))
    });
    ranges.filter_map(|(from, upto, hidden)| {
        let upto = upto?;
        (hidden.is_none() || from <= upto).then_some((from, upto))
    })
}

fn next_hidden(first: c_uint, last: c_uint) -> Option<c_uint> {
    if !any() {
        return None;
    }
    let numbers = HIDDEN.iter().filter_map(|place| c_uint::try_from(place.load(Ordering::Acquire) - 1).ok());
    numbers.filter(|fd| (first..=last).contains(fd)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
        around(first, last).collect()
    }

    #[test]
    fn ranges_go_around_what_is_hidden() {
        // Numbers that no other test has.
        let base = 900_000_000;
        let at = |fd: c_int| (base + fd) as c_uint;
        assert_eq!(ranges(at(0), at(9)), [(at(0), at(9))]);
        for fd in [3, 4, 9] {
            hide(base + fd);
        }
        assert!(is_hidden(base + 3) && !is_hidden(base + 5) && !is_hidden(-1));
        assert_eq!(ranges(at(0), at(9)), [(at(0), at(2)), (at(5), at(8))]);
        assert_eq!(ranges(at(3), at(4)), []);
        assert_eq!(ranges(at(4), at(5)), [(at(5), at(5))]);
        assert_eq!(ranges(at(9), at(0)), [(at(9), at(0))]);
        assert_eq!(ranges(at(5), c_uint::MAX), [(at(5), at(8)), (at(10), c_uint::MAX)]);
        for fd in [3, 4, 9] {
            show(base + fd);
        }
        assert!(!is_hidden(base + 3));
        assert_eq!(ranges(at(0), at(9)), [(at(0), at(9))]);
    }
}

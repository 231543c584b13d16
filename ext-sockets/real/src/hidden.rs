//! Descriptors of our own that the program does not know of: its `close` of one is `EBADF`, and
//! `close_range` leaves them out.
//!
//! A program that closes all descriptors it finds would otherwise close these, and later open
//! something of its own under their numbers.

use std::ffi::{c_int, c_uint};
use std::iter::successors;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::close_number;

/// Number of descriptors that can be hidden: as many as Linux allows a process by default
/// (`fs.nr_open`).
const MANY: usize = 1 << 20;
const WORD: usize = u64::BITS as usize;

/// One bit for each number. Memory that no bit was set in is never touched, so that it costs
/// nothing.
static HIDDEN: [AtomicU64; MANY / WORD] = [const { AtomicU64::new(0) }; MANY / WORD];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the word of a number, and its bit in that word.
fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((HIDDEN.get(fd / WORD)?, 1 << (fd % WORD)))
}

/// Hides a descriptor that was just made.
pub fn hide(fd: c_int) {
    let Some((word, bit)) = place(fd) else { return };
    // Counted first: whoever sees the bit sees the count.
    COUNT.fetch_add(1, Ordering::AcqRel);
    if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes a hidden descriptor.
pub fn close(fd: c_int) {
    show(fd);
    close_number(fd);
}

/// Shows a hidden descriptor to the program again, which is about to be closed.
pub fn show(fd: c_int) {
    if let Some((word, bit)) = place(fd)
        && word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns whether any descriptor is hidden.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Returns whether this descriptor is hidden.
#[inline]
pub fn is_hidden(fd: c_int) -> bool {
    any() && place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Splits the numbers from `first` to `last` into ranges without the hidden ones. A range whose end
/// lies before its beginning stays as it is.
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
    let first = first as usize;
    let fd = HIDDEN.iter().enumerate().skip(first / WORD).find_map(|(at, word)| {
        let before = if at == first / WORD { first % WORD } else { 0 };
        let hidden = word.load(Ordering::Acquire) >> before << before;
        (hidden != 0).then(|| at * WORD + hidden.trailing_zeros() as usize)
    })?;
    c_uint::try_from(fd).ok().filter(|fd| *fd <= last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
        around(first, last).collect()
    }

    #[test]
    fn ranges_go_around_what_is_hidden() {
        // Numbers that no other test uses.
        let base = 1_000_000;
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

//! The table of descriptors that are ours: an array by number, read without a lock.
//!
//! A program makes nearly all its calls on descriptors that are not ours, so the question costs two
//! loads and a compare. The array consists of pages that are made when one of their numbers is
//! first set, and are never freed; nothing else here allocates. Numbers from [`LIMIT`] on are never
//! ours.
//!
//! A number does not say what is open under it: the program may close it in ways that the library
//! does not see. A caller that relies on an entry compares cookies (`socket::Socket::is_under`).

use std::ffi::c_int;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceBox;
use rddp_stream::ours;

pub use ours::any;

/// The first number that is never ours, which is the kernel's default limit (`fs.nr_open`).
pub const LIMIT: usize = PAGES * PAGE;

const PAGES: usize = 256;
const PAGE: usize = 4096;

type Page = [AtomicU32; PAGE];

static TABLE: [OnceBox<Page>; PAGES] = [const { OnceBox::new() }; PAGES];

/// Returns the entry of `fd`.
#[inline]
pub fn entry(fd: c_int) -> Option<NonZeroU32> {
    NonZeroU32::new(slot(fd)?.load(Ordering::Acquire))
}

/// Returns whether the entry of `fd` is `value`, sequentially consistent with all that sets or
/// clears it.
#[inline]
pub fn is(fd: c_int, value: NonZeroU32) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::SeqCst) == value.get())
}

/// Sets the entry of `fd` and returns the previous one; `Err` when the number is beyond the table.
pub fn set(fd: c_int, value: NonZeroU32) -> Result<Option<NonZeroU32>, BeyondTable> {
    let index = usize::try_from(fd).map_err(|_| BeyondTable)?;
    let page = TABLE.get(index / PAGE).ok_or(BeyondTable)?;
    let page = page.get_or_init(|| Box::new([const { AtomicU32::new(0) }; PAGE]));
    let held = NonZeroU32::new(page[index % PAGE].swap(value.get(), Ordering::SeqCst));
    if held.is_none() {
        ours::add();
    }
    Ok(held)
}

/// Clears the entry of `fd` and returns it.
#[inline]
pub fn clear(fd: c_int) -> Option<NonZeroU32> {
    let slot = slot(fd)?;
    if slot.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let held = NonZeroU32::new(slot.swap(0, Ordering::SeqCst))?;
    ours::remove();
    Some(held)
}

/// Sets the entry of `fd`, which has one, to a value that leads to no socket; returns it.
pub fn retire(fd: c_int) -> Option<NonZeroU32> {
    NonZeroU32::new(slot(fd)?.swap(LEFT.get(), Ordering::SeqCst)).filter(|held| *held != LEFT)
}

/// The entry of a number whose socket the exit of the process has closed.
const LEFT: NonZeroU32 = NonZeroU32::MAX;

/// Clears the entry of `fd` if it is `value`; returns whether it was.
pub fn clear_if(fd: c_int, value: NonZeroU32) -> bool {
    let clear = |slot: &AtomicU32| slot.compare_exchange(value.get(), 0, Ordering::SeqCst, Ordering::Relaxed);
    let cleared = slot(fd).is_some_and(|slot| clear(slot).is_ok());
    if cleared {
        ours::remove();
    }
    cleared
}

/// Returns the descriptors from `first` to `last` that are ours.
pub fn within(first: c_int, last: c_int) -> impl Iterator<Item = c_int> {
    let from = first.max(0);
    let upto = last.min(LIMIT as c_int - 1);
    let mut next = from;
    std::iter::from_fn(move || {
        while next <= upto {
            let fd = next;
            let index = fd as usize;
            if TABLE[index / PAGE].get().is_none() {
                next = ((index / PAGE + 1) * PAGE) as c_int;
                continue;
            }
            next += 1;
            if entry(fd).is_some() {
                return Some(fd);
            }
        }
        None
    })
}

/// The error for a number that is larger than any that can be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondTable;

#[inline]
fn slot(fd: c_int) -> Option<&'static AtomicU32> {
    // As an unsigned number, a negative one is too large.
    let index = fd as u32 as usize;
    let page = TABLE.get(index / PAGE)?.get()?;
    Some(&page[index % PAGE])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::new(1).unwrap();
    const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

    #[test]
    fn numbers_that_can_be_no_descriptor_are_never_ours() {
        for fd in [-1, c_int::MIN, LIMIT as c_int, c_int::MAX] {
            assert_eq!(entry(fd), None);
            assert_eq!(clear(fd), None);
            assert_eq!(set(fd, ONE), Err(BeyondTable));
        }
    }

    #[test]
    fn an_entry_exists_from_set_to_clear() {
        let fd = LIMIT as c_int - 1;
        assert_eq!(entry(fd), None);
        assert_eq!(set(fd, ONE), Ok(None));
        assert!(any());
        assert_eq!(set(fd, TWO), Ok(Some(ONE)));
        assert_eq!(entry(fd), Some(TWO));
        assert!(!clear_if(fd, ONE), "the entry is another socket's by now");
        assert_eq!(clear(fd), Some(TWO));
        assert_eq!(clear(fd), None);
        assert_eq!(entry(fd), None);
    }

    #[test]
    fn a_walk_finds_what_is_set_across_pages() {
        let fds = [100_000, 104_095, 104_096, 150_000];
        for fd in fds {
            set(fd, ONE).unwrap();
        }
        assert_eq!(within(100_000, 160_000).collect::<Vec<_>>(), fds);
        assert_eq!(within(100_001, 149_999).collect::<Vec<_>>(), fds[1..3]);
        assert_eq!(within(104_097, 104_100).count(), 0);
        for fd in fds {
            clear(fd);
        }
    }
}

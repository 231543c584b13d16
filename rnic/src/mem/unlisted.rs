//! The check of a range of memory where there is no list of mappings: no `/proc` is mounted, as in
//! small containers and after `chroot`.
//!
//! `mincore` tells whether pages are mapped, and touches none, but neither their rights nor their
//! files. So the rights are found out by the first access, which the guard of faults bears
//! (`octets.rs`), and the memory counts as a file that others may write. Without a guard nothing is
//! registered.

use std::io;
use std::ops::Range;

use rddp_fault_guard::GUARDED;

use super::MemError;

/// The number of pages that one call asks about.
const PAGES: u64 = 1 << 14;

/// Demands that all of the range is mapped. Returns whether a part of it may be a mapping of a
/// file, which is always so. `reason` says why there is no list.
pub(super) fn require(range: Range<u64>, reason: io::Error) -> Result<bool, MemError> {
    if !GUARDED {
        return Err(MemError::Maps(reason));
    }
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let mut at = range.start - range.start % page;
    while at < range.end {
        let pages = (range.end - at).div_ceil(page).min(PAGES);
        if let Some(gap) = first_gap(at, pages, page, is_mapped)? {
            let (start, end) = (range.start, range.end);
            return Err(MemError::NotMapped { at: gap.max(start), start, end });
        }
        at += pages * page;
    }
    Ok(true)
}

/// Returns the address of the first page that is not mapped of `pages` pages from `start` on.
fn first_gap(
    mut start: u64,
    mut pages: u64,
    page: u64,
    is_mapped: impl Fn(u64, u64) -> Result<bool, MemError>,
) -> Result<Option<u64>, MemError> {
    if is_mapped(start, pages * page)? {
        return Ok(None);
    }
    // The gap begins in the first half, or the first half is mapped.
    while pages > 1 {
        let half = pages / 2;
        if is_mapped(start, half * page)? {
            (start, pages) = (start + half * page, pages - half);
        } else {
            pages = half;
        }
    }
    Ok(Some(start))
}

/// Returns whether all pages of a range are mapped. It begins at a page and has at most [`PAGES`].
fn is_mapped(start: u64, len: u64) -> Result<bool, MemError> {
    let mut resident = [0_u8; PAGES as usize];
    // SAFETY: `resident` has an octet for each page that is asked about; the range itself is not
    // touched, whatever is mapped there.
    let answer = unsafe { libc::mincore(start as *mut _, len as usize, resident.as_mut_ptr().cast()) };
    match io::Error::last_os_error() {
        _ if answer == 0 => Ok(true),
        error if error.raw_os_error() == Some(libc::ENOMEM) => Ok(false),
        error => Err(MemError::Os { call: "mincore", len: len as usize, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_a_gap_is_found() {
        const PAGE: u64 = 4096;
        for pages in [1, 2, 3, 100, PAGES] {
            let start = 7 * PAGE;
            for gap in [0, 1, pages / 3, pages / 2, pages - 1].into_iter().filter(|gap| *gap < pages) {
                // Whatever is behind the first gap does not matter.
                for len in [1, pages - gap] {
                    let hole = start + gap * PAGE..start + (gap + len) * PAGE;
                    let is_mapped = |start, len| Ok(start + len <= hole.start || start >= hole.end);
                    let found = first_gap(start, pages, PAGE, is_mapped).unwrap();
                    assert_eq!(found, Some(hole.start), "{hole:?} of {pages}");
                }
            }
            assert_eq!(first_gap(start, pages, PAGE, |_, _| Ok(true)).unwrap(), None);
        }
    }
}

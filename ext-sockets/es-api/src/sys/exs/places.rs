//! Places that events are written to, and a check that memory is mapped.

use std::ffi::c_void;

use super::types::Event;

/// Places for events that the program offers.
#[derive(Debug)]
pub struct EventPlaces {
    at: *mut Event,
    count: usize,
}

impl EventPlaces {
    /// Makes a list of `count` places.
    ///
    /// # Safety
    /// They are there until this is dropped.
    pub unsafe fn new(at: *mut Event, count: usize) -> Self {
        EventPlaces { at, count }
    }

    /// Returns the number of places.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes events, as many as there is room for; returns their number.
    pub(crate) fn put(&mut self, events: impl Iterator<Item = Event>) -> usize {
        let mut put = 0;
        for (index, event) in events.take(self.count).enumerate() {
            // SAFETY: the index is below `count`, and so many places are there until this is
            // dropped (`new`).
            unsafe { self.at.add(index).write(event) };
            put += 1;
        }
        put
    }
}

/// Returns whether memory is mapped under all of a range; checks the mappings and touches no page.
pub(crate) fn is_mapped(start: usize, len: usize) -> bool {
    let page = start & !(PAGE - 1);
    let Some(end) = start.checked_add(len) else { return false };
    let at: *mut c_void = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: on Linux `MS_ASYNC` writes nothing and changes nothing; the call fails with ENOMEM
    // where nothing is mapped.
    unsafe { libc::msync(at, end - page, libc::MS_ASYNC) == 0 }
}

/// Smallest page of the processors that this runs on; `msync` wants its multiples, and larger pages
/// are multiples too.
const PAGE: usize = 4096;

//! Where events go, and whether memory is there.

use std::ffi::c_void;

use super::types::Event;

/// Room for events that the program offers.
#[derive(Debug)]
pub struct EventPlaces {
    at: *mut Event,
    count: usize,
}

impl EventPlaces {
    /// Room for `count`.
    ///
    /// # Safety
    /// It is there until this is dropped.
    pub unsafe fn new(at: *mut Event, count: usize) -> Self {
        EventPlaces { at, count }
    }

    /// For how many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Puts them there, as many as there is room for; says how many.
    pub(crate) fn put(&mut self, events: impl Iterator<Item = Event>) -> usize {
        let mut put = 0;
        for (index, event) in events.take(self.count).enumerate() {
            // SAFETY: `new`'s promise; the index is below `count`.
            unsafe { self.at.add(index).write(event) };
            put += 1;
        }
        put
    }
}

/// Whether memory is mapped under all of a range; looks at the mappings and not at the pages.
pub(crate) fn is_mapped(start: usize, len: usize) -> bool {
    let page = start & !(PAGE - 1);
    let Some(end) = start.checked_add(len) else { return false };
    let at: *mut c_void = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: on Linux MS_ASYNC writes nothing and changes nothing; it fails with ENOMEM where nothing is mapped.
    unsafe { libc::msync(at, end - page, libc::MS_ASYNC) == 0 }
}

/// The smallest page of the processors that this is for; `msync` wants its multiples, and larger ones are multiples too.
const PAGE: usize = 4096;

//! Registered memory: ranges that the program has named (EX6, EX7).
//!
//! Nothing is pinned: the byte stream moves octets directly. A handle only lets ranges be checked.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use rddp_real::Errno;

use super::engine;
use super::handles;
use crate::sys::exs::is_mapped;

/// `EXS_MHANDLE_UNREGISTERED`: memory that is not registered.
pub const UNREGISTERED: c_int = 0;
/// `EXS_MRF_SHARED`: other threads may use the region too; here they always may.
const SHARED: c_int = 1;
/// `EXS_MRF_KERNEL`: memory for placement in the kernel. Operations are on byte streams, whose
/// octets have their place only when their turn in the stream has come.
const KERNEL: c_int = 2;

/// A registered range of memory.
#[derive(Debug)]
pub(crate) struct Region {
    start: usize,
    len: usize,
}

/// The regions of a process.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<HashMap<c_int, Arc<Region>>>);

/// The regions that an operation uses; they cannot be deregistered while this lives.
#[derive(Debug, Default)]
pub struct Used {
    regions: Vec<Arc<Region>>,
}

impl Used {
    /// Adds a region if the range lies within it.
    pub(crate) fn add(&mut self, region: Option<Arc<Region>>, start: usize, len: usize) -> Result<(), Errno> {
        let Some(region) = region else { return Ok(()) };
        let from = start.checked_sub(region.start).ok_or(Errno::INVALID)?;
        if from > region.len || len > region.len - from {
            return Err(Errno::INVALID);
        }
        self.regions.push(region);
        Ok(())
    }

    pub(crate) fn join(&mut self, other: Used) {
        self.regions.extend(other.regions);
    }
}

/// Registers a range (`exs_mregister`).
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub fn register(start: usize, len: usize, flags: c_int) -> Result<c_int, Errno> {
    if flags & KERNEL != 0 && flags & !(SHARED | KERNEL) == 0 {
        return Err(Errno(libc::ENOTSUP));
    }
    if flags & !SHARED != 0 || len == 0 || start.checked_add(len).is_none() {
        return Err(Errno::INVALID);
    }
    if !is_mapped(start, len) {
        return Err(Errno::FAULT);
    }
    let handle = handles::next()?;
    engine()?.regions.lock().insert(handle, Arc::new(Region { start, len }));
    Ok(handle)
}

/// Gives a region back (`exs_mderegister`).
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub fn deregister(handle: c_int, flags: c_int) -> Result<(), Errno> {
    if flags != 0 {
        return Err(Errno::INVALID);
    }
    let mut regions = engine()?.regions.lock();
    let region = regions.get(&handle).ok_or_else(|| handles::unknown(handle))?;
    // Operations take their regions under this lock.
    if Arc::strong_count(region) > 1 {
        return Err(Errno(libc::EBUSY));
    }
    regions.remove(&handle);
    Ok(())
}

/// Returns the region of a handle; `None` for memory that is not registered.
pub(crate) fn of(handle: c_int) -> Result<Option<Arc<Region>>, Errno> {
    if handle == UNREGISTERED {
        return Ok(None);
    }
    let regions = engine()?.regions.lock();
    regions.get(&handle).cloned().map(Some).ok_or_else(|| handles::unknown(handle))
}

impl Regions {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<c_int, Arc<Region>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_in_its_region_or_is_refused() {
        let region = Arc::new(Region { start: 100, len: 10 });
        let within = |start, len| Used::default().add(Some(region.clone()), start, len);
        for (start, len) in [(100, 10), (100, 0), (109, 1), (110, 0)] {
            assert_eq!(within(start, len), Ok(()), "{len} at {start}");
        }
        for (start, len) in [(99, 1), (100, 11), (109, 2), (110, 1), (111, 0), (105, usize::MAX), (0, 0)] {
            assert_eq!(within(start, len), Err(Errno::INVALID), "{len} at {start}");
        }
    }

    #[test]
    fn a_region_is_in_use_as_long_as_an_operation_has_it() {
        let region = Arc::new(Region { start: 0, len: 1 });
        let mut used = Used::default();
        used.add(Some(region.clone()), 0, 1).unwrap();
        let mut all = Used::default();
        all.join(used);
        assert_eq!(Arc::strong_count(&region), 2);
        drop(all);
        assert_eq!(Arc::strong_count(&region), 1);
    }
}

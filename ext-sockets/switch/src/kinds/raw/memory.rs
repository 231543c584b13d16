//! Protection domains, memory regions and windows, and the check that a work may name them.

use std::collections::HashMap;
use std::ffi::c_int;

use rddp_rnic::{Access, Error, MemError, MemoryRegion, MemoryWindow, ProtectionDomain, RegionOptions, Stag};
use rddp_stream::Errno;

use super::adapter::{Adapter, errno_of, memory_errno};
use super::work::Sge;
use crate::sys::raw::{self, Area};

/// A flag beside the rights (`Access`): fault all pages in now.
const POPULATE: c_int = 1 << 8;
/// A flag beside the rights: lock all pages into memory.
const LOCK: c_int = 1 << 9;
/// A flag beside the rights: memory that the kernel can place into.
const KERNEL: c_int = 1 << 10;

/// The region or window that an STag of the program's names.
#[derive(Debug)]
pub(super) struct Registered {
    what: What,
    domain: c_int,
    access: Access,
}

#[derive(Debug)]
enum What {
    Region(MemoryRegion),
    Window(MemoryWindow),
}

impl Registered {
    fn stag(&self) -> Stag {
        match &self.what {
            What::Region(region) => region.stag(),
            What::Window(window) => window.stag(),
        }
    }
}

/// Returns the index of an STag, which stays when its key changes.
fn index(stag: u32) -> u32 {
    stag >> 8
}

/// Opens a protection domain: `ddp_domain`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn open_domain() -> Result<c_int, Errno> {
    let adapter = Adapter::get()?;
    let number = adapter.next_domain();
    adapter.domains.write().insert(number, adapter.rnic.alloc_pd());
    Ok(number)
}

/// Closes a protection domain: `ddp_domain_close`.
///
/// # Errors
/// EINVAL: there is no such domain.
pub fn close_domain(domain: c_int) -> Result<(), Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    if domain == 0 {
        return Err(Errno::INVALID);
    }
    adapter.domains.write().remove(&domain).map(drop).ok_or(Errno::INVALID)
}

pub(super) fn domain(adapter: &Adapter, number: c_int) -> Result<ProtectionDomain, Errno> {
    adapter.domains.read().get(&number).cloned().ok_or(Errno::INVALID)
}

/// Registers memory and returns its STag: `ddp_register`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn register(number: c_int, area: &Area, access: c_int) -> Result<u32, Errno> {
    let options =
        RegionOptions { populate: access & POPULATE != 0, lock: access & LOCK != 0, ..Default::default() };
    let access = rights(access & !(POPULATE | LOCK))?;
    let adapter = Adapter::get()?;
    let domain = domain(adapter, number)?;
    let region = area.register(&domain, access, &options).map_err(|error| errno_of(&error))?;
    Ok(keep(adapter, What::Region(region), number, access))
}

/// Allocates memory and registers it; returns its address and STag: `ddp_allocate`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn allocate(number: c_int, len: usize, access: c_int) -> Result<(*mut u8, u32), Errno> {
    let has = |flag| access & flag != 0;
    let kernel = has(KERNEL);
    let options = RegionOptions { populate: has(POPULATE), lock: has(LOCK), kernel, ..Default::default() };
    let access = rights(access & !(POPULATE | LOCK | KERNEL))?;
    if len == 0 {
        return Err(Errno::INVALID);
    }
    let adapter = Adapter::get()?;
    let domain = domain(adapter, number)?;
    if kernel {
        adapter.kernel?;
    }
    let region = domain.allocate_with(len, access, &options).map_err(|error| match &error {
        // All memory that the kernel can place into is in use.
        Error::Memory(MemError::Os { error, .. }) if error.raw_os_error().is_none() => Errno(libc::ENOMEM),
        error => errno_of(error),
    })?;
    let begin = region.as_ptr();
    Ok((begin, keep(adapter, What::Region(region), number, access)))
}

/// Registers a range of a file; returns its STag and the Tagged Offset of its first octet:
/// `ddp_register_file`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn register_file(
    number: c_int,
    fd: c_int,
    (offset, len): (u64, u64),
    access: c_int,
) -> Result<(u32, u64), Errno> {
    let access = rights(access)?;
    let end = offset.checked_add(len).ok_or(Errno::INVALID)?;
    let adapter = Adapter::get()?;
    let domain = domain(adapter, number)?;
    let region = domain.register_file(raw::duplicate(fd)?, offset..end, access);
    let region = region.map_err(|error| errno_of(&error))?;
    let to = region.base();
    Ok((keep(adapter, What::Region(region), number, access), to))
}

/// Opens a memory window and returns its STag, which is invalid until it is bound: `ddp_window`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn open_window(number: c_int) -> Result<u32, Errno> {
    let adapter = Adapter::get()?;
    let window = domain(adapter, number)?.allocate_window().map_err(|error| errno_of(&error))?;
    Ok(keep(adapter, What::Window(window), number, Access::empty()))
}

fn keep(adapter: &Adapter, what: What, domain: c_int, access: Access) -> u32 {
    let registered = Registered { what, domain, access };
    let stag = registered.stag().0;
    adapter.memory.write().insert(index(stag), registered);
    stag
}

/// Gives a region another key and other rights, and returns its STag: `ddp_reregister`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn reregister(stag: u32, access: c_int) -> Result<u32, Errno> {
    let access = rights(access)?;
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    let mut memory = adapter.memory.write();
    let registered = named(&mut memory, stag)?;
    let What::Region(region) = &registered.what else { return Err(Errno::INVALID) };
    let fresh = region.reregister(access).map_err(|error| memory_errno(&error))?;
    registered.access = access;
    Ok(fresh.0)
}

/// Closes a region or a window: `ddp_deregister`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn deregister(stag: u32) -> Result<(), Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    let mut memory = adapter.memory.write();
    let registered = named(&mut memory, stag)?;
    if let What::Region(region) = &registered.what {
        region.deregister().map_err(|error| memory_errno(&error))?;
    }
    memory.remove(&index(stag));
    Ok(())
}

fn named(memory: &mut HashMap<u32, Registered>, stag: u32) -> Result<&mut Registered, Errno> {
    memory.get_mut(&index(stag)).filter(|registered| registered.stag().0 == stag).ok_or(Errno::INVALID)
}

fn rights(access: c_int) -> Result<Access, Errno> {
    u8::try_from(access).ok().and_then(Access::from_bits).ok_or(Errno::INVALID)
}

/// Returns the present STag of a region or window, by one that it had before: binding a window
/// changes its key (`ddp_stag`).
///
/// # Errors
/// EINVAL: there is no such region or window.
pub fn stag_now(stag: u32) -> Result<u32, Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    adapter.memory.read().get(&index(stag)).map(|registered| registered.stag().0).ok_or(Errno::INVALID)
}

/// The program's memory, locked for the works of one call.
pub(super) struct View<'a> {
    memory: parking_lot::RwLockReadGuard<'a, HashMap<u32, Registered>>,
    domain: c_int,
}

impl<'a> View<'a> {
    pub(super) fn new(adapter: &'a Adapter, domain: c_int) -> Self {
        View { memory: adapter.memory.read(), domain }
    }

    /// Checks that a work may name these pieces, to be written or read. The RNIC checks again when
    /// it uses them.
    pub(super) fn check(&self, list: &[Sge], write: bool) -> Result<(), Errno> {
        list.iter().filter(|piece| piece.len > 0).try_for_each(|piece| self.check_one(piece, write))
    }

    fn check_one(&self, piece: &Sge, write: bool) -> Result<(), Errno> {
        let registered = self.memory.get(&index(piece.stag)).ok_or(Errno::INVALID)?;
        let What::Region(region) = &registered.what else { return Err(Errno::INVALID) };
        if region.stag().0 != piece.stag {
            return Err(Errno::INVALID);
        }
        if registered.domain != self.domain || (write && !registered.access.contains(Access::LOCAL_WRITE)) {
            return Err(Errno(libc::EACCES));
        }
        let offset = piece.to.checked_sub(region.base()).ok_or(Errno::FAULT)?;
        let end = offset.checked_add(u64::from(piece.len)).ok_or(Errno::FAULT)?;
        if end > region.len() as u64 { Err(Errno::FAULT) } else { Ok(()) }
    }

    /// Checks that an STag names a region or window of the program's in this domain.
    pub(super) fn check_stag(&self, stag: u32) -> Result<(), Errno> {
        match self.memory.get(&index(stag)) {
            Some(registered) if registered.stag().0 != stag => Err(Errno::INVALID),
            Some(registered) if registered.domain != self.domain => Err(Errno(libc::EACCES)),
            Some(_) => Ok(()),
            None => Err(Errno::INVALID),
        }
    }
}

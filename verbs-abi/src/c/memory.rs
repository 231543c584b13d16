//! Protection domains and memory regions.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{MemoryRegion, ProtectionDomain, RegionOptions, Stag};

use super::abi::{Plain, access, ibv_context, ibv_mr, ibv_pd, rereg};
use super::border::{minus, number, pointer};
use super::context::{Context, context};
use super::handle::{Held, Object, Shared, Used, Users, find, publish, retire, retire_unused};
use crate::errors::{Outcome, of_device, of_memory};
use crate::refusal::because;
use crate::words::rights;
use std::sync::Arc;

/// A protection domain.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pd {
    c: Shared<ibv_pd>,
    pub(super) domain: ProtectionDomain,
    pub(super) context: &'static Context,
    users: Users,
}

// SAFETY: `repr(C)`, and the first field is an `ibv_pd`.
unsafe impl Object for Pd {
    type C = ibv_pd;
}

impl Used for Pd {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// A memory region.
#[repr(C)]
pub(super) struct Mr {
    c: Shared<ibv_mr>,
    state: Mutex<Registration>,
}

/// The registration of a region, which [`ibv_rereg_mr`] changes.
#[derive(Debug)]
struct Registration {
    region: MemoryRegion,
    memory: Memory,
    pd: Held<Pd>,
}

/// Memory of the program's: where it is, what peers call its first octet, and its rights.
#[derive(Clone, Copy, Debug)]
struct Memory {
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
}

// SAFETY: the address is never followed here.
unsafe impl Send for Memory {}

// SAFETY: `repr(C)`, and the first field is an `ibv_mr`.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

impl Pd {
    pub(super) fn new(context: &'static Context) -> Outcome<Arc<Pd>> {
        let domain = context.engine()?.rnic.alloc_pd();
        let c = ibv_pd { context: context.handle(), ..ibv_pd::zeroed() };
        Ok(Arc::new(Pd { c: Shared::new(c), domain, context, users: Users::default() }))
    }
}

pub(super) extern "C" fn ibv_alloc_pd(handle: *mut ibv_context) -> *mut ibv_pd {
    pointer("ibv_alloc_pd", context(handle).and_then(Pd::new).map(|pd| publish(&pd)))
}

pub(super) extern "C" fn ibv_dealloc_pd(handle: *mut ibv_pd) -> c_int {
    number("ibv_dealloc_pd", retire_unused::<Pd>(handle).map(drop))
}

/// # Safety
/// The memory may be read and written by peers as the flags say, until it is deregistered.
unsafe fn register_in(pd: Arc<Pd>, memory: Memory) -> Outcome<Registration> {
    let start =
        NonNull::new(memory.addr.cast::<u8>()).ok_or_else(|| because(Errno::EINVAL, "memory at NULL"))?;
    // A region that is zero-based by its rights has no address of choice.
    let base = (memory.flags & access::ZERO_BASED == 0).then_some(memory.iova);
    let options = RegionOptions { base, ..RegionOptions::default() };
    // SAFETY: promised by the caller; a program in C has no references that could cover it.
    let region = unsafe { pd.domain.register_with(start, memory.length, rights(memory.flags)?, &options) }
        .map_err(of_device)?;
    Ok(Registration { region, memory, pd: Held::new(pd) })
}

impl Registration {
    /// Returns the structure that the program sees.
    fn c(&self) -> ibv_mr {
        let (key, context, pd) = (self.region.stag().0, self.pd.context.handle(), self.pd.handle());
        let Memory { addr, length, .. } = self.memory;
        ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key }
    }
}

impl Mr {
    pub(super) fn stag(&self) -> Stag {
        self.state.lock().region.stag()
    }

    pub(super) fn pd(&self) -> *mut ibv_pd {
        self.state.lock().pd.handle()
    }
}

/// # Safety
/// As for [`register_in`].
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: promised by the caller.
    let state = unsafe { register_in(find::<Pd>(pd)?, Memory { addr, length, iova, flags })? };
    Ok(publish(&Arc::new(Mr { c: Shared::new(state.c()), state: Mutex::new(state) })))
}

/// Registers a region anew as `flags` say. Where that fails, it stays as it was.
///
/// # Safety
/// As for [`register_in`].
unsafe fn reregister(handle: *mut ibv_mr, flags: u32, pd: *mut ibv_pd, new: Memory) -> Outcome<()> {
    let (mr, translation) = (find::<Mr>(handle)?, flags & rereg::TRANSLATION != 0);
    let is_known = flags != 0 && flags & !rereg::ALL == 0;
    let is_empty = new.addr.is_null() || new.length == 0;
    if !is_known || (translation && is_empty) || (new.flags != 0 && flags & rereg::ACCESS == 0) {
        return Err(because(Errno::EINVAL, "flags, memory or access rights that do not belong together"));
    }
    let mut state = mr.state.lock();
    let mut memory = if translation { new } else { state.memory };
    memory.flags = if flags & rereg::ACCESS != 0 { new.flags } else { state.memory.flags };
    let pd = find::<Pd>(if flags & rereg::PD != 0 { pd } else { state.pd.handle() })?;
    // SAFETY: promised by the caller.
    let changed = unsafe { register_in(pd, memory)? };
    // Windows that are bound to the region hold it.
    state.region.deregister().map_err(|error| of_memory(&error))?;
    *state = changed;
    // SAFETY: our own object, which programs only read.
    unsafe { mr.c.get().write(state.c()) };
    Ok(())
}

pub(super) unsafe extern "C" fn ibv_rereg_mr(
    handle: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let new = Memory { addr, length, iova: addr.addr() as u64, flags: access as u32 };
    // SAFETY: the function's contract. -1 is IBV_REREG_MR_ERR_INPUT: the region is as before.
    minus("ibv_rereg_mr", unsafe { reregister(handle, flags as u32, pd, new) })
}

pub(super) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer("ibv_reg_mr", unsafe { register(pd, addr, length, addr.addr() as u64, flags as u32) })
}

pub(super) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer("ibv_reg_mr_iova", unsafe { register(pd, addr, length, iova, flags as u32) })
}

pub(super) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer("ibv_reg_mr_iova2", unsafe { register(pd, addr, length, iova, flags) })
}

pub(super) extern "C" fn ibv_dereg_mr(handle: *mut ibv_mr) -> c_int {
    number(
        "ibv_dereg_mr",
        find::<Mr>(handle).and_then(|mr| {
            mr.state.lock().region.deregister().map_err(|error| of_memory(&error))?;
            retire::<Mr>(handle).map(drop)
        }),
    )
}

impl std::fmt::Debug for Mr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mr").field("state", &self.state).finish_non_exhaustive()
    }
}

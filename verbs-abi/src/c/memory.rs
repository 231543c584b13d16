//! Protection domains and memory regions.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use nix::errno::Errno;
use rddp_rnic::{MemoryRegion, ProtectionDomain, RegionOptions};

use super::abi::{Plain, access, ibv_context, ibv_mr, ibv_pd};
use super::border::{number, pointer};
use super::context::{Context, context};
use super::handle::{Held, Object, Shared, Used, Users, find, publish, retire, retire_unused};
use crate::errors::{Outcome, of_device, of_memory};
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
struct Mr {
    c: Shared<ibv_mr>,
    region: MemoryRegion,
    _pd: Held<Pd>,
}

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
    pointer(context(handle).and_then(Pd::new).map(|pd| publish(&pd)))
}

pub(super) extern "C" fn ibv_dealloc_pd(handle: *mut ibv_pd) -> c_int {
    number(retire_unused::<Pd>(handle).map(drop))
}

/// # Safety
/// The memory may be read and written by peers as the flags say, until it is deregistered.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> Outcome<*mut ibv_mr> {
    let pd = find::<Pd>(pd)?;
    let start = NonNull::new(addr.cast::<u8>()).ok_or(Errno::EINVAL)?;
    // A region that is zero-based by its rights has no address of choice.
    let base = (flags & access::ZERO_BASED == 0).then_some(iova);
    let options = RegionOptions { base, ..RegionOptions::default() };
    // SAFETY: promised by the caller; a program in C has no references that could cover it.
    let region =
        unsafe { pd.domain.register_with(start, length, rights(flags)?, &options) }.map_err(of_device)?;
    let key = region.stag().0;
    let c = ibv_mr {
        context: pd.context.handle(),
        pd: pd.handle(),
        addr,
        length,
        handle: key,
        lkey: key,
        rkey: key,
    };
    Ok(publish(&Arc::new(Mr { c: Shared::new(c), region, _pd: Held::new(pd) })))
}

pub(super) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer(unsafe { register(pd, addr, length, addr.addr() as u64, flags as u32) })
}

pub(super) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer(unsafe { register(pd, addr, length, iova, flags as u32) })
}

pub(super) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> *mut ibv_mr {
    // SAFETY: the function's contract.
    pointer(unsafe { register(pd, addr, length, iova, flags) })
}

pub(super) extern "C" fn ibv_dereg_mr(handle: *mut ibv_mr) -> c_int {
    number(find::<Mr>(handle).and_then(|mr| {
        mr.region.deregister().map_err(|error| of_memory(&error))?;
        retire::<Mr>(handle).map(drop)
    }))
}

impl std::fmt::Debug for Mr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mr").field("region", &self.region).finish_non_exhaustive()
    }
}

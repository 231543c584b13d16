//! Shared receives: messages of several endpoints take from them.
//!
//! No more of them are outstanding than the program has asked for, counted until their events are
//! taken. So an event queue that reserves room for all of them once has enough, however many
//! endpoints share them (RFC 5042 §6.4.6).

use std::ffi::c_int;
use std::sync::Arc;

use parking_lot::Mutex;
use rddp_rnic::{RecvWr, SharedReceiveQueue, SrqConfig};
use rddp_stream::Errno;

use super::adapter::Adapter;
use super::memory::{self, View};
use super::work::{Posting, post_errno, posting};
use crate::sys::raw::Works;

/// The largest number of receives that can be outstanding.
const MAX_SHARED: u32 = 1 << 20;

pub(super) struct Shared {
    pub(super) number: c_int,
    pub(super) srq: SharedReceiveQueue,
    domain: c_int,
    pub(super) max: usize,
    /// The count of endpoints that take from these receives; `None` once they are closed. The lock
    /// is held while a receive is posted, too.
    users: Mutex<Option<usize>>,
}

/// Opens shared receives and returns their number: `ddp_receives`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn open_receives(domain: c_int, max: u32, quota: u32) -> Result<c_int, Errno> {
    if max == 0 || max > MAX_SHARED {
        return Err(Errno::INVALID);
    }
    let adapter = Adapter::get()?;
    let quota = (quota != 0).then_some(quota as usize);
    let max = max as usize;
    let srq = memory::domain(adapter, domain)?.create_srq(SrqConfig { max_recv: max, quota });
    let number = adapter.next_shared();
    let shared = Shared { number, srq, domain, max, users: Mutex::new(Some(0)) };
    adapter.shared.write().insert(number, Arc::new(shared));
    Ok(number)
}

/// Closes shared receives: `ddp_receives_close`.
///
/// # Errors
/// EBUSY: endpoints take from them.
pub fn close_receives(number: c_int) -> Result<(), Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    of(adapter, number)?.close()?;
    adapter.shared.write().remove(&number);
    Ok(())
}

/// Asks for an event when fewer than `limit` receives are left: `ddp_receives_arm`.
///
/// # Errors
/// EINVAL: there are no such receives.
pub fn arm_receives(number: c_int, limit: u32) -> Result<(), Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    of(adapter, number)?.srq.arm_limit(limit as usize);
    Ok(())
}

/// Posts shared receives and returns how many were taken: `ddp_post_shared`.
///
/// # Errors
/// The error of the first, if it was not taken.
pub fn post_shared(number: c_int, works: Works<'_>) -> Result<usize, Errno> {
    let adapter = Adapter::existing().ok_or(Errno::INVALID)?;
    let shared = of(adapter, number)?;
    let view = View::new(adapter, shared.domain);
    let mut taken = 0;
    for one in works.iter() {
        let posted = one.and_then(|one| posting(&one, &view)).and_then(|posting| match posting {
            Posting::Receive(wr) => shared.receive(wr),
            Posting::Send(_) => Err(Errno::INVALID),
        });
        match posted {
            Ok(()) => taken += 1,
            Err(errno) if taken == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(taken)
}

/// Returns the shared receives with this number.
pub(super) fn of(adapter: &Adapter, number: c_int) -> Result<Arc<Shared>, Errno> {
    adapter.shared.read().get(&number).cloned().ok_or(Errno::INVALID)
}

impl Shared {
    fn receive(&self, wr: RecvWr) -> Result<(), Errno> {
        let users = self.users.lock();
        if users.is_none() {
            return Err(Errno::INVALID);
        }
        if self.srq.outstanding() >= self.max {
            return Err(Errno::WOULD_BLOCK);
        }
        self.srq.post_recv(wr).map_err(post_errno)
    }

    /// Counts an endpoint that takes from these receives.
    pub(super) fn enter(&self) -> Result<(), Errno> {
        let mut users = self.users.lock();
        *users.as_mut().ok_or(Errno::INVALID)? += 1;
        Ok(())
    }

    /// Counts an endpoint less, which has ended.
    pub(super) fn release(&self) {
        if let Some(users) = &mut *self.users.lock() {
            *users -= 1;
        }
    }

    fn close(&self) -> Result<(), Errno> {
        let mut users = self.users.lock();
        match *users {
            None => Err(Errno::INVALID),
            Some(0) => {
                *users = None;
                Ok(())
            }
            Some(_) => Err(Errno(libc::EBUSY)),
        }
    }
}

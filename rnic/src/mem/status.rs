//! The status of a region or window, which its handle reads without a lock.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use rddp_ddp::Stag;

use super::Access;

/// STag, rights and validity in one word, changed only by the holder of the object's lifecycle
/// lock.
pub(super) struct Status(AtomicU64);

const VALID: u64 = 1;

impl Status {
    pub(super) fn new(stag: Stag, access: Access) -> Self {
        Self(AtomicU64::new(word(stag, access)))
    }

    pub(super) fn stag(&self) -> Stag {
        Stag((self.0.load(Ordering::Acquire) >> 32) as u32)
    }

    pub(super) fn access(&self) -> Access {
        Access::from_bits_retain((self.0.load(Ordering::Acquire) >> 8) as u8)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.0.load(Ordering::Acquire) & VALID != 0
    }

    pub(super) fn set_valid(&self, stag: Stag, access: Access) {
        self.0.store(word(stag, access) | VALID, Ordering::Release);
    }

    /// Makes the object invalid under another STag.
    pub(super) fn set_invalid_as(&self, stag: Stag) {
        self.0.store(word(stag, Access::empty()), Ordering::Release);
    }

    pub(super) fn set_invalid(&self) {
        self.0.fetch_and(!VALID, Ordering::AcqRel);
    }
}

fn word(stag: Stag, access: Access) -> u64 {
    u64::from(stag.0) << 32 | u64::from(access.bits()) << 8
}

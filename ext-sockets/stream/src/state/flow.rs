//! The part of a state that tells how octets flow: what is owed to TCP, which directions the
//! program has closed, and its settings. It is read and written without a lock.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::Errno;

/// The part. All zeros: nothing is owed, both directions are open, the settings are a socket's own.
#[repr(C)]
pub(crate) struct Flow {
    /// Set while octets, or the end of the direction, are owed to TCP: see
    /// [`Tx::owed`](super::Tx::owed).
    pub(crate) owing: AtomicBool,
    /// Set while octets are owed for which TCP had no room. (An end that is owed waits for the end
    /// of the startup, and not for room.)
    pub(crate) wants_room: AtomicBool,
    /// Set while octets for the program are in [`Rx::kept`](super::Rx::kept), and nothing of their
    /// FPDU is in the kernel.
    pub(crate) holding: AtomicBool,
    pub(crate) shut_receive: AtomicBool,
    pub(crate) shut_send: AtomicBool,
    /// `O_NONBLOCK` when it was last asked for.
    pub(crate) nonblocking: AtomicBool,
    /// `TCP_CORK` as the program has set it.
    pub(crate) corked: AtomicBool,
    /// Error that TCP reported to a call that had moved octets: the next call returns it.
    pub(crate) pending: AtomicI32,
    /// `SO_RCVLOWAT` as the program has set it; 0 stands for 1.
    pub(crate) low_water: AtomicU32,
    pub(crate) receive_timeout: AtomicU64,
    pub(crate) send_timeout: AtomicU64,
    /// `SO_LINGER` of the program, and why the kernel has another; 0: it has not.
    pub(crate) linger: AtomicU64,
}

impl Flow {
    pub(super) fn owe_nothing(&self) {
        self.wants_room.store(false, Ordering::Release);
        self.owing.store(false, Ordering::Release);
    }

    pub(super) fn take_pending(&self) -> Option<Errno> {
        (self.pending.load(Ordering::Relaxed) != 0)
            .then(|| self.pending.swap(0, Ordering::AcqRel))
            .filter(|errno| *errno != 0)
            .map(Errno)
    }
}

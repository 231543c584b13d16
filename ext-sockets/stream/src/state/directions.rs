//! The two directions of a connection, each under a lock of its own.

use rddp_octets::{Outgoing, Position, Terms};

use crate::options::PrivateData;
use crate::rooms::Rooms;
use crate::sdp::Shared;
use crate::sys::{Chain, Lease};

/// The receiving direction. Octets that the program has not read are in the kernel, but for those
/// in `kept`.
#[repr(C)]
pub(crate) struct Rx {
    /// Set while octets are being taken out of the kernel: the fields after it are not valid then.
    pub(crate) moving: bool,
    /// Set if the octets counted by `left` are in `kept` and not in the kernel.
    pub(crate) left_is_kept: bool,
    /// The FPDUs taken.
    pub(crate) at: Position,
    pub(crate) terms: Terms,
    pub(crate) guess: Guess,
    pub(crate) window: Window,
    /// Octets of the checked FPDU in front that the program has not read.
    pub(crate) left: u32,
    /// Octets behind them in the kernel, which are dropped when the last of them is read.
    pub(crate) trailer: u32,
    /// Octets that the program has read of the FPDU in front, which had to stay in the kernel
    /// whole.
    pub(crate) shown: u32,
    /// Octets in `kept` of an FPDU that is not whole.
    pub(crate) absorbed: u32,
    pub(crate) kept: Kept,
    /// The connection of SDP, where the FPDUs carry one.
    pub(crate) sdp: Shared,
    /// Octets that the program has not read, and those that it may have there; the block of their
    /// numbers.
    pub(crate) held: Chain,
    pub(crate) rooms: Rooms,
    pub(crate) tables: Lease,
    pub(crate) peer: Peer,
}

/// Expectations of the next FPDU.
#[repr(C)]
pub(crate) struct Guess {
    /// Set if the last FPDU was a large one: the next is looked at before it is read.
    pub(crate) bulk: bool,
    /// Set if the last FPDU was all that was there when it was taken.
    pub(crate) alone: bool,
    /// Octets of the last FPDU that was taken.
    pub(crate) last_fpdu: u32,
    /// Octets that the next one is expected to have; 0 where nothing is expected.
    pub(crate) expected_fpdu: u32,
}

/// Facts about the kernel's receive buffer.
#[repr(C)]
pub(crate) struct Window {
    /// Set if the receive buffer is so small that a partial FPDU in it may close the window.
    pub(crate) narrow: bool,
    /// `SO_RCVLOWAT` as the kernel has it; 0 stands for 1, which a socket begins with.
    pub(crate) wake_at: u32,
}

/// The octets that were taken out of the kernel and are not read yet: see [`Rx::kept`].
#[repr(C)]
pub(crate) struct Kept {
    /// The block that they are in.
    pub(crate) block: Lease,
    /// The place in it where those counted by [`Rx::left`] begin.
    pub(crate) at: u32,
}

/// The peer's private data, from its startup frame.
#[repr(C)]
pub(crate) struct Peer {
    pub(crate) data_known: bool,
    pub(crate) data: PrivateData,
}

/// The sending direction. A message is never left open when the lock is given back: the next owner
/// may begin one.
#[repr(C)]
pub(crate) struct Tx {
    /// Set while octets are being given to the kernel: the fields after it are not valid then.
    pub(crate) moving: bool,
    /// Set if the startup frame of this end is among what was owed.
    pub(crate) greeted: bool,
    /// Set if a FIN is to go out behind what is owed.
    pub(crate) fin_due: bool,
    pub(crate) fin_sent: bool,
    /// Set while octets that waited for the startup are framed: if a process dies then, it is not
    /// known which were.
    pub(crate) framing: bool,
    /// Set while owed or kept octets are changed, by several stores: see [`Tx::change`].
    pub(crate) changing: bool,
    /// The FPDUs made.
    pub(crate) out: Outgoing,
    /// Time at which the EMSS was asked for, of [`now`](crate::sys::now); 0 if it is to be asked
    /// for again.
    pub(crate) emss_asked: u64,
    /// The EMSS when it was last asked for; 0 before that.
    pub(crate) emss: u32,
    /// Octets between the beginning of a TCP segment and the end of what is owed, where that is the
    /// rest of a train; else 0.
    pub(crate) unaligned: u32,
    /// The place of what is owed: see [`Tx::owed`].
    pub(crate) owed: Waiting,
    /// The place of the octets that wait for the end of the startup: see [`Tx::early`].
    pub(crate) early: Waiting,
    pub(crate) little: [u8; LITTLE],
}

/// The place of octets that wait to be sent.
#[repr(C)]
pub(crate) struct Waiting {
    /// Bounds of the octets in the block.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) block: Lease,
}

/// Octets that may be owed without a block.
pub(crate) const LITTLE: usize = 1024;

//! Reasons why a stream has ended, the error that the program gets, and the word of shared memory
//! that has both.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_rdmap::TerminateCode;

use super::Errno;
use super::sdp::Wrong;

/// The reason why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// The peer's startup frame did not come in time.
    NoAnswer = 1,
    /// The peer sent something else than a startup frame: it does not speak MPA.
    NotMpa,
    /// The peer's startup frame is one that this end cannot work with.
    Startup,
    /// The peer's program rejected the connection; TCP was left open.
    Rejected,
    /// The peer broke a rule of the protocols: the code is that of this end's Terminate.
    Fault,
    /// The peer sent a Terminate: the code is the peer's.
    Terminated,
    /// The peer closed inside an FPDU or a message.
    Truncated,
    /// The state does not fit together, or not to the octets in the kernel: a process died while it
    /// moved octets, or something else than this library used the socket.
    Damaged,
    /// Memory that the program gave to be sent or filled vanished in the middle of an FPDU.
    MemoryGone,
    /// The peer speaks MPA, and not SDP.
    NotSdp,
    /// The peer broke a rule of SDP: the code is the rule's number.
    SdpFault,
    /// The peer aborted the connection of SDP.
    SdpAborted,
    /// The peer closed before its startup frame had come, and no octet is lost: the end of TCP's
    /// octets.
    Closed,
}

impl Why {
    /// Returns whether the end came before FPDUs flowed.
    pub(super) fn is_of_startup(self) -> bool {
        matches!(
            self,
            Self::NoAnswer | Self::NotMpa | Self::Startup | Self::Rejected | Self::NotSdp | Self::Closed
        )
    }

    pub(super) const ALL: [Self; 13] = [
        Self::NoAnswer,
        Self::NotMpa,
        Self::Startup,
        Self::Rejected,
        Self::Fault,
        Self::Terminated,
        Self::Truncated,
        Self::Damaged,
        Self::MemoryGone,
        Self::NotSdp,
        Self::SdpFault,
        Self::SdpAborted,
        Self::Closed,
    ];
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Reason of the end.
    pub why: Why,
    /// Error that calls on the socket get.
    pub errno: Errno,
    /// Code of the Terminate that was sent or received; zero where there was none.
    pub code: TerminateCode,
}

impl Ended {
    pub(super) const fn new(why: Why, errno: Errno) -> Self {
        Self { why, errno, code: TerminateCode(0) }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::NoAnswer => f.write_str("the peer did not answer the MPA startup"),
            Why::NotMpa => f.write_str("the peer does not speak MPA"),
            Why::Startup => write!(f, "the MPA startup failed, MPA error {}", self.code.0 & 0xff),
            Why::Rejected => f.write_str("the peer rejected the connection"),
            Why::Fault => write!(f, "the peer broke the protocol: {}", self.code),
            Why::Terminated => write!(f, "the peer ended the stream: {}", self.code),
            Why::Truncated => f.write_str("the peer closed inside an FPDU or a message"),
            Why::MemoryGone => f.write_str("the program's memory vanished in the middle of an FPDU"),
            Why::NotSdp => f.write_str("the peer does not speak SDP"),
            Why::SdpFault => match Wrong::of(self.code.0) {
                Some(wrong) => write!(f, "the peer broke a rule of SDP: {wrong}"),
                None => f.write_str("the peer broke a rule of SDP"),
            },
            Why::SdpAborted => f.write_str("the peer aborted the connection"),
            Why::Closed => f.write_str("the peer closed before the MPA startup"),
            Why::Damaged => f.write_str(
                "the socket's state is damaged: a process died while it moved octets, or used the socket without rddp",
            ),
        }
    }
}

/// An [`Ended`] that is set once: the first one stays.
#[derive(Debug, Default)]
pub(super) struct AtomicEnd(AtomicU64);

impl AtomicEnd {
    pub(super) fn set(&self, end: Ended) {
        let packed =
            u64::from(end.why as u8) | u64::from(end.errno.0 as u16) << 16 | u64::from(end.code.0) << 32;
        // A second end is a consequence of the first.
        let _ = self.0.compare_exchange(0, packed, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    pub(super) fn load(&self) -> Option<Ended> {
        Self::unpack(self.0.load(Ordering::Acquire))
    }

    /// Returns the end of the word that stands for it.
    pub(super) fn unpack(packed: u64) -> Option<Ended> {
        let why = Why::ALL.into_iter().find(|why| *why as u8 == packed as u8)?;
        let errno = Errno(i32::from((packed >> 16) as u16));
        Some(Ended { why, errno, code: TerminateCode((packed >> 32) as u16) })
    }

    /// Returns whether no sending call has reported the end yet, and notes that one does. TCP
    /// reports an error once; later sends fail with `EPIPE`.
    pub(super) fn first_told(&self) -> bool {
        self.0.fetch_or(TOLD, Ordering::AcqRel) & TOLD == 0
    }
}

/// Set in an [`AtomicEnd`] when a sending call has reported it.
const TOLD: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_stays() {
        let end = AtomicEnd::default();
        assert_eq!((end.is_set(), end.load()), (false, None));
        let first = Ended { why: Why::Fault, errno: Errno::RESET, code: TerminateCode(0x1203) };
        end.set(first);
        end.set(Ended::new(Why::Truncated, Errno::RESET));
        assert_eq!(end.load(), Some(first));
        assert!(end.first_told() && !end.first_told());
        assert_eq!(end.load(), Some(first));
    }
}

//! The RDMA Read Request header (RFC 5040 §4.4).

use core::fmt;

use rddp_ddp::Stag;

use crate::fields::{Fields, Out};
use crate::{Fault, Opcode};

/// What a Read asks for: the payload of opcode 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequestRepr {
    /// `SinkSTag`: the requester's buffer. Copied into the Response without being looked at.
    pub sink_stag: Stag,
    /// `SinkTO`: where in it the data goes.
    pub sink_to: u64,
    /// RDMARDSZ: octets wanted, 0 included.
    pub size: u32,
    /// `SrcSTag`: the responder's buffer.
    pub src_stag: Stag,
    /// `SrcTO`: where in it the data is.
    pub src_to: u64,
}

impl ReadRequestRepr {
    /// Octets of this header.
    pub const LEN: usize = 28;

    /// Reads a whole payload.
    ///
    /// # Errors
    /// [`Fault::ControlLength`] when it is not exactly [`LEN`](Self::LEN) octets.
    pub fn parse(payload: &[u8]) -> Result<Self, Fault> {
        if payload.len() != Self::LEN {
            return Err(Fault::ControlLength { opcode: Opcode::ReadRequest, len: payload.len() });
        }
        let mut fields = Fields(payload);
        Ok(Self {
            sink_stag: Stag(fields.u32()),
            sink_to: fields.u64(),
            size: fields.u32(),
            src_stag: Stag(fields.u32()),
            src_to: fields.u64(),
        })
    }

    /// Writes the header.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let mut out = Out(out);
        out.u32(self.sink_stag.0);
        out.u64(self.sink_to);
        out.u32(self.size);
        out.u32(self.src_stag.0);
        out.u64(self.src_to);
    }

    /// The header's octets.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        self.emit(&mut octets);
        octets
    }

    /// The same Read with its first `done` octets behind it, as a Terminate in mid-answer shows it (RFC 5040 §4.8).
    #[must_use]
    pub fn advanced(&self, done: u32) -> Self {
        Self {
            sink_to: self.sink_to.wrapping_add(done.into()),
            src_to: self.src_to.wrapping_add(done.into()),
            size: self.size.saturating_sub(done),
            ..*self
        }
    }
}

impl fmt::Display for ReadRequestRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sink_stag, sink_to, size, src_stag, src_to } = self;
        write!(f, "read {size} from {src_stag}+{src_to:#x} to {sink_stag}+{sink_to:#x}")
    }
}

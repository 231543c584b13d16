//! The RDMA Read Request header (RFC 5040 §4.4).

use core::fmt;

use rddp_ddp::Stag;

use crate::fields::{Fields, Out};
use crate::{Fault, Opcode};

/// An RDMA Read Request: the payload of opcode 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequestRepr {
    /// `SinkSTag`: the requester's buffer. Copied into the Response unchecked.
    pub sink_stag: Stag,
    /// `SinkTO`: the place in that buffer.
    pub sink_to: u64,
    /// RDMARDSZ: number of octets to read, which may be 0.
    pub size: u32,
    /// `SrcSTag`: the responder's buffer.
    pub src_stag: Stag,
    /// `SrcTO`: the place in that buffer.
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

    /// Returns the header's octets.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        self.emit(&mut octets);
        octets
    }

    /// Returns the Read without its first `done` octets, as a Terminate sent in the middle of the
    /// answer shows it (RFC 5040 §4.8).
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OCTETS: [u8; 28] =
        *b"\x0a\x0b\x0c\x0d\0\0\0\0\0\0\x20\0\0\0\x03\xe8\x22\x33\x44\x55\0\0\0\0\0\x02\x01\0";
    const READ: ReadRequestRepr = ReadRequestRepr {
        sink_stag: Stag(0x0a0b_0c0d),
        sink_to: 0x2000,
        size: 1000,
        src_stag: Stag(0x2233_4455),
        src_to: 0x20100,
    };

    #[test]
    fn fields_are_where_the_rfc_has_them() {
        // RFC 5040 §4.4
        assert_eq!(READ.octets(), OCTETS);
        assert_eq!(ReadRequestRepr::parse(&OCTETS), Ok(READ));
    }

    #[test]
    fn any_other_length_is_refused() {
        for len in (0..28).chain(29..64) {
            let fault = ReadRequestRepr::parse(&[0; 64][..len]).unwrap_err();
            assert_eq!(fault, Fault::ControlLength { opcode: Opcode::ReadRequest, len });
        }
    }

    #[test]
    fn a_read_in_progress_has_less_to_go_at_higher_offsets() {
        // RFC 5040 §4.8
        let left = READ.advanced(600);
        assert_eq!(left, ReadRequestRepr { sink_to: 0x2258, size: 400, src_to: 0x20358, ..READ });
        assert_eq!(READ.advanced(0), READ);
        let top = ReadRequestRepr { sink_to: u64::MAX, ..READ };
        assert_eq!(top.advanced(1).sink_to, 0);
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed_and_the_reverse(octets: [u8; 28]) {
            let read = ReadRequestRepr::parse(&octets).unwrap();
            prop_assert_eq!(read.octets(), octets);
        }
    }
}

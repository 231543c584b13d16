//! `HelloAck`, the answer to a Hello.

use super::fields::{get_u32, octets, put};
use super::hello::{MARK, receive_size, startup, startup_header};
use super::{FormatError, HEADER_LEN, Mid, Version};

/// The answer to a Hello, from the passive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The version of SDP that the sender speaks.
    pub version: Version,
    /// The private receive buffers that the sender has posted: the first credits.
    pub bufs: u16,
    /// The adverts that the sender takes at a time; 0 if it takes none.
    pub max_adverts: u8,
    /// `ActRcvSz`: octets of a receive buffer of the sender, base header included.
    pub actual_size: u32,
    /// The sender is this program: it says so in octets that others send as zero.
    pub rddp: bool,
}

impl HelloAck {
    /// Octets of the message.
    pub const LEN: usize = 196;

    /// Reads a `HelloAck`.
    ///
    /// # Errors
    /// The octets are none, its version is not supported, or its receive buffers hold no message.
    pub fn parse(message: &[u8]) -> Result<Self, FormatError> {
        let header = startup_header(Mid::HelloAck, message, message.len())?;
        let ext = &message[HEADER_LEN..];
        Ok(Self {
            version: Version::parse(ext[field::VERSION])?,
            bufs: header.bufs,
            max_adverts: ext[field::MAX_ADVERTS],
            actual_size: receive_size(get_u32(ext, field::ACTUAL_SIZE))?,
            rddp: octets(ext, field::MARK) == MARK,
        })
    }

    /// Returns the message.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        startup(Mid::HelloAck, self.bufs).emit(&mut out);
        let ext = &mut out[HEADER_LEN..];
        ext[field::VERSION] = self.version.octet();
        ext[field::MAX_ADVERTS] = self.max_adverts;
        put(ext, field::ACTUAL_SIZE, self.actual_size.to_be_bytes());
        if self.rddp {
            put(ext, field::MARK, MARK);
        }
        out
    }

    /// Returns whether the sender is this program.
    #[must_use]
    pub const fn is_rddp(&self) -> bool {
        self.rddp
    }
}

/// Places of the fields in the extended header.
mod field {
    pub(super) const VERSION: usize = 0;
    pub(super) const MAX_ADVERTS: usize = 3;
    pub(super) const ACTUAL_SIZE: usize = 4;
    pub(super) const MARK: usize = 176;
}

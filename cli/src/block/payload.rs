//! The payload of a write of an NBD client, which comes in pieces.

use rddp_block::export::{Command, DiskError};
use rddp_block::nbd::request::Request;
use rddp_rnic::Sge;

use super::buffers::Buffer;

/// Octets of a piece. Each that comes shows that the client has not stalled.
const PIECE: usize = 1 << 20;

/// A write whose payload comes.
pub(super) struct Payload {
    pub(super) request: Request,
    /// The outcome of the look at the request.
    pub(super) checked: Result<Command, DiskError>,
    pub(super) buffer: Buffer,
    /// Octets of the pieces so far.
    asked: usize,
}

impl Payload {
    pub(super) fn new(request: Request, checked: Result<Command, DiskError>, buffer: Buffer) -> Self {
        Payload { request, checked, buffer, asked: 0 }
    }

    /// Returns the place of the next piece, or `None` behind the last.
    pub(super) fn next(&mut self) -> Option<Sge> {
        let whole = Buffer::payload(self.request.payload_len());
        let from = whole.start + self.asked;
        let piece = from..whole.end.min(from + PIECE);
        self.asked += piece.len();
        (!piece.is_empty()).then(|| self.buffer.region().sge(piece))
    }
}

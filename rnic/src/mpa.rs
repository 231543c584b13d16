//! Words of MPA in the public interface: what its startup has said, for programs that ask.

use rddp_mpa::Request;

use crate::conn::request::ConnectRequest;
use crate::qp::QueuePair;
use crate::wire::opening::Asked;

impl ConnectRequest {
    /// Returns the MPA Request: the revision, IRD, ORD and settings that the peer asks for (RFC
    /// 6581 §9.1: the program gets to see them).
    ///
    /// `None` of a peer that has come by another wire.
    pub fn request(&self) -> Option<&Request> {
        match self.asked()? {
            Asked::Iwarp(request) => Some(request),
            Asked::Tcp => None,
        }
    }
}

impl QueuePair {
    /// Takes the Request that has come. `None` before that, or when it has been taken before.
    pub fn request(&self) -> Option<Request> {
        match self.inner.here().ok()?.startup().lock().as_ref()?.take_asked()? {
            Asked::Iwarp(request) => Some(request),
            Asked::Tcp => None,
        }
    }
}

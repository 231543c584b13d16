//! The end that sends the Request and waits for the Reply (RFC 5044 §7.1.2, RFC 6581 §9.3).

use super::frame::{EnhancedData, Frame, FrameKind, Parsed};
use super::negotiation::{Settled, assume, conclude};
use super::{DEPTH_MAX, Negotiated, Revision, StartupConfig, StartupError, StartupMisuse};
use crate::framing::Framing;

/// Sends [`request`](Self::request), then gives what comes back to [`handle`](Self::handle) until that has an
/// answer. No FPDU is sent before it has.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: StartupConfig,
    request: Vec<u8>,
    tx: Option<Framing>,
}

/// What [`Initiator::handle`] made of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum InitiatorStep {
    /// Not all here yet.
    Need {
        /// Octets from the front of the stream without which another call cannot say more.
        total: usize,
    },
    /// Full Operation begins. What follows `used` in the stream is FPDUs.
    Accepted {
        /// What both ends hold to.
        negotiated: Negotiated,
        /// The responder's ULP's.
        private_data: Vec<u8>,
        /// Octets of the Reply.
        used: usize,
    },
    /// The responder's ULP does not want the connection. TCP is left to ours.
    Rejected {
        /// The responder's ULP's.
        private_data: Vec<u8>,
        /// The responder's IRD as it was sent.
        peer_ird: Option<u16>,
        /// The ORD that the responder would have wanted.
        peer_ord: Option<u16>,
        /// Octets of the Reply.
        used: usize,
    },
}

impl Initiator {
    /// Makes the Request.
    ///
    /// # Errors
    /// It cannot say what `config` wants, or not hold `private_data`.
    pub fn new(config: &StartupConfig, private_data: &[u8]) -> Result<Self, StartupMisuse> {
        let request = Frame {
            kind: FrameKind::Request,
            markers: config.markers,
            crc: config.crc,
            rejected: false,
            revision: config.revision,
            enhanced: offer(config)?,
            private_data,
        };
        Ok(Self { config: config.clone(), request: request.emit()?, tx: None })
    }

    /// The Request frame: the first octets that this end sends.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// How a Terminate is framed that an error calls for, once a Reply has said what its sender wants.
    #[must_use]
    pub const fn tx(&self) -> Option<Framing> {
        self.tx
    }

    /// Looks at everything that has come from the responder.
    ///
    /// # Errors
    /// The Reply is malformed, or not one that this end can work with. The connection is closed, after a Terminate
    /// if [`StartupError::terminate`] names one.
    pub fn handle(&mut self, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
        let (reply, used) = match Frame::parse(FrameKind::Reply, stream)? {
            Parsed::Frame { frame, used } => (frame, used),
            Parsed::Need { total } => return Ok(InitiatorStep::Need { total }),
        };
        if reply.rejected {
            return Ok(rejected(&reply, used));
        }
        self.check_revision(&reply)?;
        // RFC 5044 §7.1.1: CRCs if either wants them; markers towards the end that wants them.
        let crc = self.config.crc || reply.crc;
        self.tx = Some(Framing { crc, markers: reply.markers });
        let settled = self.settle(reply.enhanced.as_ref())?;
        let negotiated = Negotiated {
            revision: reply.revision,
            enhanced: reply.enhanced.is_some(),
            crc,
            markers_tx: reply.markers,
            markers_rx: self.config.markers,
            ird: settled.ird,
            ord: settled.ord,
            rtr: settled.rtr,
            peer_ird: reply.enhanced.map(|data| data.ird),
            peer_ord: reply.enhanced.map(|data| data.ord),
        };
        Ok(InitiatorStep::Accepted { negotiated, private_data: reply.private_data.to_vec(), used })
    }

    /// The responder closed, and `stream` is all that came. `handle` had no answer to it.
    #[must_use]
    pub fn closed(&self, stream: &[u8]) -> StartupError {
        match Frame::parse(FrameKind::Reply, stream) {
            Ok(Parsed::Need { total } | Parsed::Frame { used: total, .. }) => {
                StartupError::Closed { have: stream.len(), total, enhanced: self.is_enhanced() }
            }
            Err(error) => error,
        }
    }

    fn is_enhanced(&self) -> bool {
        self.config.revision == Revision::Two
    }

    // RFC 6581 §10: an enhanced Reply to an enhanced Request, a plain one to a plain one.
    fn check_revision(&self, reply: &Frame<'_>) -> Result<(), StartupError> {
        match (self.is_enhanced(), reply.enhanced.is_some()) {
            (true, false) => Err(StartupError::UnenhancedReply),
            (false, true) => Err(StartupError::RevisionMismatch),
            (true, true) | (false, false) => Ok(()),
        }
    }

    fn settle(&self, reply: Option<&EnhancedData>) -> Result<Settled, StartupError> {
        match reply {
            Some(data) => conclude(data, &self.config),
            None => Ok(assume(&self.config)),
        }
    }
}

/// RFC 6581's part of the Request.
fn offer(config: &StartupConfig) -> Result<Option<EnhancedData>, StartupMisuse> {
    if config.revision == Revision::One {
        return Ok(None);
    }
    // RFC 6581 §9.1: 0x3FFF would say something else.
    if config.ird > DEPTH_MAX || config.ord > DEPTH_MAX {
        return Err(StartupMisuse::DepthTooLarge);
    }
    // RFC 6581 §9.2: with A, each kind of RTR that can be sent is offered. Without it none is, in any frame.
    if config.peer_to_peer && config.rtr.is_empty() {
        return Err(StartupMisuse::NoRtr);
    }
    let StartupConfig { peer_to_peer, rtr, ird, ord, .. } = *config;
    Ok(Some(EnhancedData { peer_to_peer, rtr, ird, ord }))
}

// RFC 6581 §9.1: the ULP learns of the responder's depths from a reject too. A plain reject is taken from anyone.
fn rejected(reply: &Frame<'_>, used: usize) -> InitiatorStep {
    InitiatorStep::Rejected {
        private_data: reply.private_data.to_vec(),
        peer_ird: reply.enhanced.map(|data| data.ird),
        peer_ord: reply.enhanced.map(|data| data.ord),
        used,
    }
}

//! The initiator: it sends the Request and waits for the Reply (RFC 5044 §7.1.2, RFC 6581 §9.3).

use super::frame::{EnhancedData, Frame, FrameKind, FrameOctets, Parsed};
use super::negotiation::{Settled, assume, conclude};
use super::{DEPTH_MAX, Negotiated, Revision, StartupConfig, StartupError, StartupMisuse};
use crate::framing::Framing;

/// The initiator's half of a startup.
///
/// The caller sends [`request`](Self::request), then shows [`handle`](Self::handle) what arrives
/// until that has an answer. No FPDU may be sent before.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: StartupConfig,
    request: FrameOctets,
    tx: Option<Framing>,
}

/// The outcome of [`Initiator::handle`], with private data of its own, or of [`Initiator::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum InitiatorStep<D = Vec<u8>> {
    /// The Reply has not arrived completely.
    Need {
        /// Octets that the stream must have, from its front, before another call can say more.
        total: usize,
    },
    /// Full Operation begins. The octets of the stream behind `used` are FPDUs.
    Accepted {
        /// The parameters of the connection.
        negotiated: Negotiated,
        /// Private data from the responder's ULP.
        private_data: D,
        /// Octets of the Reply.
        used: usize,
    },
    /// The responder's ULP rejects the connection. What becomes of the TCP connection is up to our
    /// ULP.
    Rejected {
        /// Private data from the responder's ULP.
        private_data: D,
        /// The responder's IRD, as received.
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
    /// The Request cannot express what `config` wants, or cannot hold `private_data`.
    pub fn new(config: &StartupConfig, private_data: &[u8]) -> Result<Self, StartupMisuse> {
        let request = Frame {
            kind: FrameKind::Request,
            markers: config.markers,
            crc: config.crc,
            rejected: false,
            large_fpdus: config.large_fpdus && !config.markers,
            revision: config.revision,
            enhanced: offer(config)?,
            private_data,
        };
        Ok(Self { config: config.clone(), request: request.emit()?, tx: None })
    }

    /// Returns the Request frame: the first octets that this end sends.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the framing of a Terminate that an error calls for. `None` until a Reply has said
    /// whether its sender wants CRCs and markers.
    #[must_use]
    pub const fn tx(&self) -> Option<Framing> {
        self.tx
    }

    /// Reads the Reply from all octets that have arrived from the responder.
    ///
    /// # Errors
    /// The Reply is malformed, or this end cannot accept it. The caller closes the connection,
    /// after a Terminate if [`StartupError::terminate`] names one.
    pub fn handle(&mut self, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
        self.read(stream).map(InitiatorStep::into_owned)
    }

    /// Reads the Reply as [`handle`](Self::handle) does, and allocates nothing: the private data
    /// stay where they are.
    ///
    /// # Errors
    /// As those of [`handle`](Self::handle).
    pub fn read<'a>(&mut self, stream: &'a [u8]) -> Result<InitiatorStep<&'a [u8]>, StartupError> {
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
        let large_fpdus =
            self.config.large_fpdus && reply.large_fpdus && !reply.markers && !self.config.markers;
        let negotiated = Negotiated {
            revision: reply.revision,
            enhanced: reply.enhanced.is_some(),
            crc,
            markers_tx: reply.markers,
            markers_rx: self.config.markers,
            ird: settled.ird,
            ord: settled.ord,
            rtr: settled.rtr,
            large_fpdus,
            peer_ird: reply.enhanced.map(|data| data.ird),
            peer_ord: reply.enhanced.map(|data| data.ord),
        };
        Ok(InitiatorStep::Accepted { negotiated, private_data: reply.private_data, used })
    }

    /// Returns the error for a connection that the responder closed. `stream` is everything that
    /// arrived, of which [`handle`](Self::handle) still needed more.
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

    // RFC 6581 §10: an enhanced Request gets an enhanced Reply, a plain one a plain one.
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

impl InitiatorStep<&[u8]> {
    fn into_owned(self) -> InitiatorStep {
        match self {
            Self::Need { total } => InitiatorStep::Need { total },
            Self::Accepted { negotiated, private_data, used } => {
                InitiatorStep::Accepted { negotiated, private_data: private_data.to_vec(), used }
            }
            Self::Rejected { private_data, peer_ird, peer_ord, used } => {
                InitiatorStep::Rejected { private_data: private_data.to_vec(), peer_ird, peer_ord, used }
            }
        }
    }
}

/// Returns the data of RFC 6581 in the Request.
fn offer(config: &StartupConfig) -> Result<Option<EnhancedData>, StartupMisuse> {
    if config.revision == Revision::One {
        return Ok(None);
    }
    // RFC 6581 §9.1: 0x3FFF is not a depth, but leaves the depth to the ULP.
    if config.ird > DEPTH_MAX || config.ord > DEPTH_MAX {
        return Err(StartupMisuse::DepthTooLarge);
    }
    // RFC 6581 §9.2: with A, each kind of RTR that this end can send is offered. Without A none is,
    // in any frame.
    if config.peer_to_peer && config.rtr.is_empty() {
        return Err(StartupMisuse::NoRtr);
    }
    let StartupConfig { peer_to_peer, rtr, ird, ord, .. } = *config;
    Ok(Some(EnhancedData { peer_to_peer, rtr, ird, ord }))
}

// RFC 6581 §9.1: the ULP learns of the responder's depths from a rejection too. A plain rejection
// is accepted from every responder, as one that does not know RFC 6581 sends it.
fn rejected<'a>(reply: &Frame<'a>, used: usize) -> InitiatorStep<&'a [u8]> {
    InitiatorStep::Rejected {
        private_data: reply.private_data,
        peer_ird: reply.enhanced.map(|data| data.ird),
        peer_ord: reply.enhanced.map(|data| data.ord),
        used,
    }
}

//! The end that waits for the Request and answers it (RFC 5044 §7.1.2, RFC 6581 §9.3).

use super::frame::{EnhancedData, Frame, FrameKind, Parsed};
use super::negotiation::{answer, assume, refuse};
use super::{Negotiated, Revision, RtrSet, StartupConfig, StartupError, StartupMisuse};

/// Gives what comes to [`handle`](Self::handle) until that has a [`Request`], which the ULP accepts or rejects.
#[derive(Clone, Debug, Default)]
pub struct Responder;

/// What [`Responder::handle`] made of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ResponderStep {
    /// Not all here yet.
    Need {
        /// Octets from the front of the stream without which another call cannot say more.
        total: usize,
    },
    /// A Request for the ULP to decide on.
    Request {
        /// What it says.
        request: Request,
        /// Its octets. Nothing should follow them: the initiator has to wait for the Reply.
        used: usize,
    },
}

/// What an initiator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of the initiator. The Reply has the same.
    pub revision: Revision,
    /// The initiator prefers CRCs.
    pub crc: bool,
    /// The initiator wants markers in what it receives.
    pub markers: bool,
    /// RFC 6581's data is there.
    pub enhanced: bool,
    /// The initiator's IRD as it was sent. It may be [`ULP_NEGOTIATES`](crate::ULP_NEGOTIATES).
    pub peer_ird: Option<u16>,
    /// The initiator's ORD as it was sent. It may be [`ULP_NEGOTIATES`](crate::ULP_NEGOTIATES).
    pub peer_ord: Option<u16>,
    /// The connection is to be peer-to-peer: the initiator will send an RTR first.
    pub peer_to_peer: bool,
    /// The kinds of RTR that the initiator can send.
    pub rtr: RtrSet,
    /// The initiator's ULP's.
    pub private_data: Vec<u8>,
}

impl Responder {
    /// A responder to whom nothing has come yet.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Looks at everything that has come from the initiator.
    ///
    /// # Errors
    /// The Request is malformed or of another revision. The connection is closed; nothing is sent.
    pub fn handle(&mut self, stream: &[u8]) -> Result<ResponderStep, StartupError> {
        Ok(match Frame::parse(FrameKind::Request, stream)? {
            Parsed::Frame { frame, used } => ResponderStep::Request { request: Request::of(&frame), used },
            Parsed::Need { total } => ResponderStep::Need { total },
        })
    }

    /// The initiator closed, and `stream` is all that came. `handle` had no answer to it.
    #[must_use]
    pub fn closed(&self, stream: &[u8]) -> StartupError {
        match Frame::parse(FrameKind::Request, stream) {
            Ok(Parsed::Need { total } | Parsed::Frame { used: total, .. }) => {
                StartupError::Closed { have: stream.len(), total, enhanced: false }
            }
            Err(error) => error,
        }
    }
}

impl Request {
    /// The Reply that accepts, and what both ends then hold to. No FPDU may be sent before one of the initiator's
    /// has come and been found valid (RFC 5044 §7.1.2 rule 4).
    ///
    /// # Errors
    /// The Reply cannot hold `private_data`, or `config` has no kind of RTR to name for a peer-to-peer connection.
    pub fn accept(
        &self,
        config: &StartupConfig,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Negotiated), StartupMisuse> {
        let (enhanced, settled) = match self.data() {
            Some(data) => answer(&data, config).map(|(reply, settled)| (Some(reply), settled))?,
            None => (None, assume(config)),
        };
        let reply = self.reply(config, enhanced, private_data);
        let negotiated = Negotiated {
            revision: self.revision,
            enhanced: self.enhanced,
            crc: reply.crc,
            markers_tx: self.markers,
            markers_rx: config.markers,
            ird: settled.ird,
            ord: settled.ord,
            rtr: settled.rtr,
            peer_ird: self.peer_ird,
            peer_ord: self.peer_ord,
        };
        Ok((reply.emit()?, negotiated))
    }

    /// The Reply that rejects. MPA is over then; TCP stays open for the ULP, who should let the initiator close it.
    ///
    /// # Errors
    /// The Reply cannot hold `private_data`.
    pub fn reject(&self, config: &StartupConfig, private_data: &[u8]) -> Result<Vec<u8>, StartupMisuse> {
        let enhanced = self.data().map(|data| refuse(&data, config));
        Frame { rejected: true, ..self.reply(config, enhanced, private_data) }.emit()
    }

    fn of(frame: &Frame<'_>) -> Self {
        let data = frame.enhanced;
        Self {
            revision: frame.revision,
            crc: frame.crc,
            markers: frame.markers,
            enhanced: data.is_some(),
            peer_ird: data.map(|data| data.ird),
            peer_ord: data.map(|data| data.ord),
            peer_to_peer: data.is_some_and(|data| data.peer_to_peer),
            rtr: data.map_or(RtrSet::NONE, |data| data.rtr),
            private_data: frame.private_data.to_vec(),
        }
    }

    fn data(&self) -> Option<EnhancedData> {
        let (ird, ord) = (self.peer_ird?, self.peer_ord?);
        Some(EnhancedData { peer_to_peer: self.peer_to_peer, rtr: self.rtr, ird, ord })
    }

    // RFC 6581 §10: enhanced if the Request was, and of its revision.
    fn reply<'a>(
        &self,
        config: &StartupConfig,
        enhanced: Option<EnhancedData>,
        private_data: &'a [u8],
    ) -> Frame<'a> {
        Frame {
            kind: FrameKind::Reply,
            markers: config.markers,
            crc: self.crc || config.crc,
            rejected: false,
            revision: self.revision,
            enhanced,
            private_data,
        }
    }
}

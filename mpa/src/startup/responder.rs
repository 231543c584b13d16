//! The responder: it waits for the Request and replies to it (RFC 5044 §7.1.2, RFC 6581 §9.3).

use super::frame::{EnhancedData, Frame, FrameKind, FrameOctets, Parsed};
use super::negotiation::{answer, assume, refuse};
use super::{Negotiated, Revision, RtrSet, StartupConfig, StartupError, StartupMisuse};

/// The responder's half of a startup: [`handle`](Self::handle) is shown what arrives until it
/// returns a [`Request`], which the ULP accepts or rejects.
#[derive(Clone, Debug, Default)]
pub struct Responder;

/// The outcome of [`Responder::handle`], with private data of its own, or of [`Responder::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ResponderStep<D = Vec<u8>> {
    /// The Request has not arrived completely.
    Need {
        /// Octets that the stream must have, from its front, before another call can say more.
        total: usize,
    },
    /// A Request for the ULP to decide on.
    Request {
        /// The Request's contents.
        request: Request<D>,
        /// The octets of the Request. Nothing should follow them: the initiator has to wait for the
        /// Reply.
        used: usize,
    },
}

/// An initiator's Request.
///
/// ```
/// use rddp_mpa::{Initiator, Responder, ResponderStep, StartupConfig};
/// let config = StartupConfig::default();
/// let initiator = Initiator::new(&config, b"which file?")?;
/// let step = Responder::new().handle(initiator.request())?;
/// let ResponderStep::Request { request, .. } = step else {
///     return Err("the frame is not whole".into());
/// };
/// assert_eq!(request.private_data, b"which file?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<D = Vec<u8>> {
    /// The revision of the Request, which the Reply has too.
    pub revision: Revision,
    /// The initiator asks for CRCs.
    pub crc: bool,
    /// The initiator wants markers in what it receives.
    pub markers: bool,
    /// The Request has the data of RFC 6581.
    pub enhanced: bool,
    /// The initiator's IRD, as received. It may be [`ULP_NEGOTIATES`](crate::ULP_NEGOTIATES).
    pub peer_ird: Option<u16>,
    /// The initiator's ORD, as received. It may be [`ULP_NEGOTIATES`](crate::ULP_NEGOTIATES).
    pub peer_ord: Option<u16>,
    /// The connection is to be peer-to-peer: the initiator will send an RTR first.
    pub peer_to_peer: bool,
    /// The kinds of RTR that the initiator can send.
    pub rtr: RtrSet,
    /// The initiator takes FPDUs longer than a TCP segment, and asks for consent to send such.
    pub large_fpdus: bool,
    /// Private data from the initiator's ULP.
    pub private_data: D,
}

impl Responder {
    /// A responder to which nothing has arrived yet.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Reads the Request from all octets that have arrived from the initiator.
    ///
    /// # Errors
    /// The Request is malformed or of an unsupported revision. The caller closes the connection
    /// without sending anything.
    pub fn handle(&mut self, stream: &[u8]) -> Result<ResponderStep, StartupError> {
        Ok(match self.read(stream)? {
            ResponderStep::Need { total } => ResponderStep::Need { total },
            ResponderStep::Request { request, used } => {
                ResponderStep::Request { request: request.into_owned(), used }
            }
        })
    }

    /// Reads the Request as [`handle`](Self::handle) does, and allocates nothing: the private data
    /// stay where they are.
    ///
    /// # Errors
    /// As those of [`handle`](Self::handle).
    pub fn read<'a>(&mut self, stream: &'a [u8]) -> Result<ResponderStep<&'a [u8]>, StartupError> {
        Ok(match Frame::parse(FrameKind::Request, stream)? {
            Parsed::Frame { frame, used } => ResponderStep::Request { request: Request::of(&frame), used },
            Parsed::Need { total } => ResponderStep::Need { total },
        })
    }

    /// Returns the error for a connection that the initiator closed. `stream` is everything that
    /// arrived, of which [`handle`](Self::handle) still needed more.
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

impl<D> Request<D> {
    /// Returns the Reply that accepts, and the parameters of the connection. No FPDU may be sent
    /// before one of the initiator's has arrived and was found valid (RFC 5044 §7.1.2 rule 4).
    ///
    /// # Errors
    /// The Reply cannot hold `private_data`, or the connection is to be peer-to-peer and `config`
    /// has no kind of RTR to name.
    pub fn accept(
        &self,
        config: &StartupConfig,
        private_data: &[u8],
    ) -> Result<(FrameOctets, Negotiated), StartupMisuse> {
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
            large_fpdus: reply.large_fpdus,
            peer_ird: self.peer_ird,
            peer_ord: self.peer_ord,
        };
        Ok((reply.emit()?, negotiated))
    }

    /// Returns the Reply that rejects. MPA ends there. The TCP connection stays open for the ULP,
    /// which should let the initiator close it.
    ///
    /// # Errors
    /// The Reply cannot hold `private_data`.
    pub fn reject(&self, config: &StartupConfig, private_data: &[u8]) -> Result<FrameOctets, StartupMisuse> {
        let enhanced = self.data().map(|data| refuse(&data, config));
        let reply = self.reply(config, enhanced, private_data);
        Frame { rejected: true, large_fpdus: false, ..reply }.emit()
    }

    fn data(&self) -> Option<EnhancedData> {
        let (ird, ord) = (self.peer_ird?, self.peer_ord?);
        Some(EnhancedData { peer_to_peer: self.peer_to_peer, rtr: self.rtr, ird, ord })
    }

    // RFC 6581 §10: the Reply is enhanced if the Request was, and of the Request's revision.
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
            large_fpdus: config.large_fpdus && self.large_fpdus && !config.markers && !self.markers,
            revision: self.revision,
            enhanced,
            private_data,
        }
    }
}

impl<'a> Request<&'a [u8]> {
    fn of(frame: &Frame<'a>) -> Self {
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
            large_fpdus: frame.large_fpdus,
            private_data: frame.private_data,
        }
    }

    fn into_owned(self) -> Request {
        Request {
            revision: self.revision,
            crc: self.crc,
            markers: self.markers,
            enhanced: self.enhanced,
            peer_ird: self.peer_ird,
            peer_ord: self.peer_ord,
            peer_to_peer: self.peer_to_peer,
            rtr: self.rtr,
            large_fpdus: self.large_fpdus,
            private_data: self.private_data.to_vec(),
        }
    }
}

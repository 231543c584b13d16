//! The startup of a byte stream: from the first octets of a TCP connection to FPDUs, or to plain
//! octets (RFC 5044 §7.1, RFC 6581).

use std::error::Error;
use std::fmt;

use rddp_iwarp::{OwnMessage, Refusal};
use rddp_mpa::{
    FrameOctets, Framer, Framing, Initiator, InitiatorStep, Negotiated, Request, Responder, ResponderStep,
    Rtr, StartupConfig, StartupError, StartupMisuse,
};
use rddp_rdmap::TerminateRepr;

use crate::outgoing::Outgoing;
use crate::position::{Position, Terms};

/// The startup of one end, which holds none of the peer's octets.
///
/// An initiator sends [`request`](Self::request). Either end then shows [`step`](Self::step) all
/// octets that have come, until it needs no more of them; or [`closed`](Self::closed), when no more
/// can come. It takes `used` octets from the front of the connection, and none where the peer is
/// [plain](Progress::Plain). How long an end waits is its own affair.
///
/// ```
/// use rddp_octets::{Handshake, HandshakeOptions, Progress};
///
/// let options = HandshakeOptions::default();
/// let mut initiator = Handshake::initiator(options.clone(), b"hello")?;
/// let mut responder = Handshake::responder(options);
///
/// let Progress::Asked(asked) = responder.step(initiator.request()) else { panic!("a Request") };
/// assert_eq!(asked.private_data(), b"hello");
/// let (reply, passive) = asked.accept(b"welcome")?;
/// assert_eq!(initiator.step(&reply[..30]), Progress::Need { total: reply.len() });
/// let Progress::Accepted { agreed: active, private_data, .. } = initiator.step(&reply) else {
///     panic!("a Reply that accepts")
/// };
/// assert_eq!(private_data, b"welcome");
///
/// // The initiator's first FPDU lets the responder send.
/// assert!(active.first.is_some() && passive.first.is_none());
/// assert_eq!(active.outgoing.framing(), passive.terms.framing());
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Clone, Debug)]
pub struct Handshake {
    options: HandshakeOptions,
    /// Present in an initiator.
    initiator: Option<Initiator>,
}

/// The settings of a [`Handshake`].
/// ```
/// use rddp_octets::{Handshake, HandshakeOptions, Progress};
///
/// let mut options = HandshakeOptions { plain_peers: true, ..HandshakeOptions::default() };
/// options.startup.markers = true;
/// assert_eq!(Handshake::responder(options).step(b"GET / HTTP/1.1\r\n"), Progress::Plain);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeOptions {
    /// The parameters that this end asks for.
    pub startup: StartupConfig,
    /// True if a peer that does not speak MPA is served plain octets.
    pub plain_peers: bool,
    /// True if the [format](crate::Format) has a message that an initiator sends first: where no
    /// RTR is agreed on, it takes the place of a Send without octets.
    pub format_begins: bool,
}

/// The outcome of a look at what has come.
/// ```
/// use rddp_octets::{Handshake, HandshakeOptions, Progress};
///
/// let initiator = Handshake::initiator(HandshakeOptions::default(), b"private data")?;
/// let mut responder = Handshake::responder(HandshakeOptions::default());
/// let mut count = 1;
/// let asked = loop {
///     match responder.step(&initiator.request()[..count]) {
///         Progress::Need { total } => count = total,
///         Progress::Asked(asked) => break asked,
///         other => panic!("{other:?}"),
///     }
/// };
/// assert_eq!(asked.used, count);
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress<'a> {
    /// The peer's frame is not whole.
    Need {
        /// Octets that must have come before another look can say more.
        total: usize,
    },
    /// The initiator's Request is here, and waits for the Reply.
    Asked(Asked<'a>),
    /// The responder accepts: this end may send.
    Accepted {
        /// Values that both ends have agreed on.
        agreed: Agreed,
        /// Private data of the responder's program.
        private_data: &'a [u8],
        /// Octets of the Reply.
        used: usize,
    },
    /// The responder rejects.
    Rejected {
        /// The rest of the connection.
        afterwards: Afterwards,
        /// Private data of the responder's program.
        private_data: &'a [u8],
        /// Octets of the Reply.
        used: usize,
    },
    /// The peer is a plain client, and is served: all that has come is for the program.
    Plain,
    /// The startup has failed.
    Refused(Refused),
}

/// An initiator's Request.
/// ```
/// use rddp_octets::{Handshake, HandshakeOptions, Progress};
///
/// let mut initiator = Handshake::initiator(HandshakeOptions::default(), b"which file?")?;
/// let mut responder = Handshake::responder(HandshakeOptions::default());
/// let Progress::Asked(asked) = responder.step(initiator.request()) else { panic!("a Request") };
/// let reply = match asked.private_data() {
///     b"which file?" => asked.accept(b"that one")?.0,
///     _ => asked.reject()?.0,
/// };
/// assert!(matches!(initiator.step(&reply), Progress::Accepted { private_data: b"that one", .. }));
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    request: Request<&'a [u8]>,
    config: StartupConfig,
    plain_peers: bool,
    /// Octets of the Request.
    pub used: usize,
}

/// The values that both ends have agreed on.
/// ```
/// use rddp_octets::{Agreed, Duplex, Outgoing, Position, Terms};
///
/// // Ends that know all of it need no startup.
/// let terms = Terms { crc: true, ..Terms::default() };
/// let outgoing = Outgoing { crc: true, ..Outgoing::FIRST };
/// let agreed = Agreed { terms, at: Position::FIRST, outgoing, first: None, may_send: true };
/// let mut duplex = Duplex::new(&agreed);
/// assert_eq!(duplex.put(b"at once"), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Values of the receiving direction.
    pub terms: Terms,
    /// The position at which it begins.
    pub at: Position,
    /// The sending direction, behind `first` if that is a Send.
    pub outgoing: Outgoing,
    /// The FPDU that an initiator sends before any other, unless the
    /// [format begins](HandshakeOptions::format_begins). It lets the responder send (RFC 5044
    /// §7.1.2 r4, RFC 6581 §9.2).
    pub first: Option<OwnMessage>,
    /// True at an initiator, which may send at once; a responder has to have
    /// [a good FPDU](crate::Incoming::has_good_fpdu) before.
    pub may_send: bool,
}

/// The rest of a TCP connection behind a Reply that rejects, which leaves it open (RFC 5044 §7.1.2
/// r3).
/// ```
/// use rddp_octets::{Afterwards, Handshake, HandshakeOptions, Progress};
///
/// let options = HandshakeOptions { plain_peers: true, ..HandshakeOptions::default() };
/// let mut initiator = Handshake::initiator(options.clone(), b"")?;
/// let Progress::Asked(asked) = Handshake::responder(options).step(initiator.request()) else {
///     panic!("a Request")
/// };
/// let (reply, here) = asked.reject()?;
/// let Progress::Rejected { afterwards: there, .. } = initiator.step(&reply) else {
///     panic!("a Reply")
/// };
/// assert_eq!([here, there], [Afterwards::Plain; 2]);
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Both ends go on in plain TCP: the octets behind the Reply are for the programs.
    Plain,
    /// This end sends a FIN: the responder goes on in plain TCP, and its program would wait for the
    /// octets of a plain client.
    Fin,
    /// The connection is left to the program.
    Open,
}

/// A startup that has failed because of the peer. The connection is closed, by a reset if its
/// descriptor stays with a program (RFC 5044 §7.1.2).
/// ```
/// use rddp_octets::{Handshake, HandshakeOptions, Progress, StartupError};
///
/// let mut initiator = Handshake::initiator(HandshakeOptions::default(), b"")?;
/// let Progress::Refused(refused) = initiator.step(b"HTTP/1.1 400 Bad Request\r\n") else {
///     panic!("this is no Reply")
/// };
/// assert_eq!(refused.error, StartupError::BadKey);
/// assert!(refused.fpdu().is_empty(), "the peer would not understand a Terminate");
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub error: StartupError,
    /// The Terminate to send before, and its framing: it is the [only FPDU](Self::fpdu) of the
    /// connection.
    pub terminate: Option<(TerminateRepr, Framing)>,
}

impl Refused {
    /// Returns the octets to send before the connection is closed: the Terminate's FPDU, if there
    /// is one.
    #[must_use]
    pub fn fpdu(&self) -> Vec<u8> {
        let Some((terminate, framing)) = &self.terminate else { return Vec::new() };
        let (message, mut framer) = (OwnMessage::terminate(terminate), Framer::new(*framing));
        let mut fpdu = vec![0; message.fpdu_len(&framer)];
        message.emit(&mut framer, &mut fpdu);
        fpdu
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the startup has failed")
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl Handshake {
    /// Makes the startup of the end that connects, with private data for the peer's program.
    ///
    /// # Errors
    /// The Request cannot express the options, or cannot hold the private data.
    pub fn initiator(options: HandshakeOptions, private_data: &[u8]) -> Result<Self, StartupMisuse> {
        let initiator = Some(Initiator::new(&options.startup, private_data)?);
        Ok(Self { options, initiator })
    }

    /// Makes the startup of the end that accepts.
    #[must_use]
    pub const fn responder(options: HandshakeOptions) -> Self {
        Self { options, initiator: None }
    }

    /// Returns the frame that this end sends before the peer's comes: nothing at a responder.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        self.initiator.as_ref().map_or(&[], Initiator::request)
    }

    /// Looks at all octets that have come.
    pub fn step<'a>(&mut self, arrived: &'a [u8]) -> Progress<'a> {
        let step = match &mut self.initiator {
            Some(initiator) => initiator.read(arrived).map(|step| answered(step, &self.options)),
            None => Responder::new().read(arrived).map(|step| asked(step, &self.options)),
        };
        step.unwrap_or_else(|error| self.failed(error))
    }

    /// Looks at all octets that have come, and behind which the peer has closed.
    pub fn closed(&self, arrived: &[u8]) -> Progress<'static> {
        self.failed(match &self.initiator {
            Some(initiator) => initiator.closed(arrived),
            None => Responder::new().closed(arrived),
        })
    }

    fn failed(&self, error: StartupError) -> Progress<'static> {
        // A Request has spoiled the connection for a plain server.
        let plain_peers = self.options.plain_peers && self.initiator.is_none();
        let terminate =
            match Refusal::of(&error, self.initiator.as_ref().and_then(Initiator::tx), plain_peers) {
                Refusal::Plain => return Progress::Plain,
                Refusal::Terminate { terminate, framing } => Some((terminate, framing)),
                Refusal::Close => None,
            };
        Progress::Refused(Refused { error, terminate })
    }
}

/// Returns the progress of an initiator.
fn answered<'a>(step: InitiatorStep<&'a [u8]>, options: &HandshakeOptions) -> Progress<'a> {
    match step {
        InitiatorStep::Need { total } => Progress::Need { total },
        InitiatorStep::Accepted { negotiated, private_data, used } => {
            let first = negotiated.rtr.or((!options.format_begins).then_some(Rtr::Send));
            Progress::Accepted { agreed: Agreed::initiator(&negotiated, first), private_data, used }
        }
        InitiatorStep::Rejected { private_data, used, .. } => {
            let afterwards = match (private_data == GOES_ON_PLAIN, options.plain_peers) {
                (true, true) => Afterwards::Plain,
                (true, false) => Afterwards::Fin,
                (false, _) => Afterwards::Open,
            };
            Progress::Rejected { afterwards, private_data, used }
        }
    }
}

/// Returns the progress of a responder.
fn asked<'a>(step: ResponderStep<&'a [u8]>, options: &HandshakeOptions) -> Progress<'a> {
    match step {
        ResponderStep::Need { total } => Progress::Need { total },
        ResponderStep::Request { request, used } => {
            let rtr = options.startup.rtr.write_if_offered(request.rtr);
            let config = StartupConfig { rtr, ..options.startup.clone() };
            Progress::Asked(Asked { request, config, plain_peers: options.plain_peers, used })
        }
    }
}

impl<'a> Asked<'a> {
    /// Returns the private data of the initiator's program.
    #[must_use]
    pub fn private_data(&self) -> &'a [u8] {
        self.request.private_data
    }

    /// Returns the Reply that accepts, and what both ends have agreed on by it. This end may send
    /// once it has [a good FPDU](crate::Incoming::has_good_fpdu).
    ///
    /// # Errors
    /// The Reply cannot hold `private_data`, or the initiator asks for an RTR and this end accepts
    /// none.
    pub fn accept(&self, private_data: &[u8]) -> Result<(FrameOctets, Agreed), StartupMisuse> {
        let (reply, negotiated) = self.request.accept(&self.config, private_data)?;
        Ok((reply, Agreed::responder(&negotiated)))
    }

    /// Returns the Reply that rejects, and what becomes of the connection behind it: where plain
    /// peers are served, the Reply tells an initiator of this crate that this end goes on so.
    ///
    /// # Errors
    /// The Reply cannot hold the depths of this end.
    pub fn reject(&self) -> Result<(FrameOctets, Afterwards), StartupMisuse> {
        let (private_data, afterwards) =
            if self.plain_peers { (GOES_ON_PLAIN, Afterwards::Plain) } else { (&[][..], Afterwards::Open) };
        Ok((self.request.reject(&self.config, private_data)?, afterwards))
    }
}

impl Agreed {
    fn initiator(negotiated: &Negotiated, first: Option<Rtr>) -> Self {
        Self {
            at: Position { rtr_read: first.is_some_and(Rtr::is_answered), ..Position::FIRST },
            outgoing: Outgoing::of(negotiated, if first == Some(Rtr::Send) { 2 } else { 1 }),
            first: first.map(OwnMessage::ready_to_receive),
            may_send: true,
            ..Self::responder(negotiated)
        }
    }

    fn responder(negotiated: &Negotiated) -> Self {
        let (terms, outgoing) = (Terms::of(negotiated), Outgoing::of(negotiated, 1));
        Self { terms, at: Position::FIRST, outgoing, first: None, may_send: false }
    }
}

/// Private data of a Reply that rejects, whose sender goes on in plain TCP.
const GOES_ON_PLAIN: &[u8] = b"rddp: plain TCP";

//! `mpa_startup`: any octets as a startup frame, and two ends with any configuration, by themselves
//! and of a byte stream (RFC 5044 §7.1, RFC 6581).

use arbitrary::{Arbitrary, Unstructured};
use rddp_mpa::{
    Frame, FrameKind, Initiator, InitiatorStep, MAX_PRIVATE_DATA, Negotiated, Parsed, Request, Responder,
    ResponderStep, Revision, RtrSet, StartupConfig, StartupError, ULP_NEGOTIATES,
};
use rddp_octets::{Afterwards, Handshake, HandshakeOptions, Progress};

use crate::input::{Octets, inputs};

inputs! {
    /// One input for all checks.
    pub struct Input {
        /// The configuration of the initiator.
        initiator: Wish,
        /// The configuration of the responder.
        responder: Wish,
        /// The beginning of the stream: a key, or nothing.
        key: u8,
        /// The rest of the stream.
        stream: Octets,
    }

    /// The configuration of one end.
    pub struct Wish {
        /// Revision 2 rather than 1.
        two: bool,
        /// C, M, A, kinds of RTR, large FPDUs, and whether a byte stream serves plain peers.
        flags: u8,
        /// Inbound Read queue depth.
        ird: u16,
        /// Outbound Read queue depth.
        ord: u16,
        /// The value up to which IRD may be raised.
        max_ird: u16,
        /// Octets of private data.
        private_data: u16,
    }
}

impl Wish {
    pub(crate) fn config(&self) -> StartupConfig {
        let flag = |bit: u8| self.flags & bit != 0;
        StartupConfig {
            revision: if self.two { Revision::Two } else { Revision::One },
            crc: flag(1),
            markers: flag(2),
            ird: self.ird,
            ord: self.ord,
            max_ird: self.max_ird,
            assumed_ird: self.max_ird,
            peer_to_peer: flag(4),
            rtr: RtrSet { send: flag(8), write: flag(16), read: flag(32) },
            large_fpdus: flag(64),
        }
    }

    /// Returns the settings of a byte stream.
    fn options(&self, format_begins: bool) -> HandshakeOptions {
        HandshakeOptions { startup: self.config(), plain_peers: self.flags & 128 != 0, format_begins }
    }

    pub(crate) fn private_data(&self, limit: usize) -> Vec<u8> {
        (0..usize::from(self.private_data) % limit).map(|at| at as u8).collect()
    }
}

/// Runs one input through all checks.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let stream = input.octets_of_the_stream();
    for kind in [FrameKind::Request, FrameKind::Reply] {
        frame(kind, &stream);
    }
    asked(&stream, &input);
    answered(&stream, &input);
    two_ends(&input);
    for format_begins in [false, true] {
        let passive = Handshake::responder(input.responder.options(format_begins));
        let data = input.initiator.private_data(509);
        let active = Handshake::initiator(input.initiator.options(format_begins), &data);
        shaken(passive.clone(), &stream);
        if let Ok(active) = active {
            shaken(active.clone(), &stream);
            two_shake_hands(active, passive, &input);
        }
    }
}

/// The possible beginnings of a stream.
const KEYS: [&[u8]; 3] = [b"MPA ID Req Frame", b"MPA ID Rep Frame", b""];

impl Input {
    pub(crate) fn octets_of_the_stream(&self) -> Vec<u8> {
        [KEYS[usize::from(self.key) % KEYS.len()], &self.stream.0].concat()
    }
}

/// Checks that the verdict does not depend on how much has arrived, and that every frame can be
/// written and read again.
fn frame(kind: FrameKind, stream: &[u8]) {
    let whole = Frame::parse(kind, stream);
    for len in 0..stream.len().min(20 + MAX_PRIVATE_DATA) {
        match Frame::parse(kind, &stream[..len]) {
            Ok(Parsed::Need { total }) => {
                assert!(total > len && total <= 20 + MAX_PRIVATE_DATA);
                if let Ok(Parsed::Frame { used, .. }) = whole {
                    assert!(total <= used);
                }
            }
            early => assert_eq!(early, whole, "{len} octets"),
        }
    }
    let Ok(Parsed::Frame { frame, used }) = whole else { return };
    let written = frame.emit().unwrap();
    assert_eq!(Frame::parse(kind, &written), Ok(Parsed::Frame { frame, used: written.len() }));
    assert_eq!(written.len(), used);
    // The frame is unchanged except for reserved bits, and for S and R where they have no meaning.
    assert_eq!(written[..16], stream[..16]);
    assert_eq!(written[17..20], stream[17..20]);
    assert_eq!(written[16] & !stream[16], 0);
    let prefix = if frame.enhanced.is_some() { 4 } else { 0 };
    assert_eq!(written[20 + prefix..], stream[20 + prefix..used]);
}

fn asked(stream: &[u8], input: &Input) {
    match Responder::new().handle(stream) {
        Ok(ResponderStep::Request { request, used }) => {
            assert!(used <= stream.len());
            accept(&request, input);
        }
        Ok(ResponderStep::Need { total }) => {
            assert!(total > stream.len());
            assert_eq!(
                Responder::new().closed(stream),
                StartupError::Closed { have: stream.len(), total, enhanced: false }
            );
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(error.terminate(), None);
            assert_eq!(Responder::new().closed(stream), error);
        }
    }
}

/// Checks the Reply: it is enhanced if the Request was, and no depth in it exceeds that of this end
/// (RFC 6581 §9.1, §10).
fn accept(request: &Request, input: &Input) {
    let own = input.responder.config();
    let private_data = input.responder.private_data(600);
    match request.accept(&own, &private_data) {
        Ok((reply, negotiated)) => {
            let Ok(Parsed::Frame { frame, used }) = Frame::parse(FrameKind::Reply, &reply) else {
                panic!("a Reply of our own is no Reply");
            };
            assert_eq!((used, frame.private_data, frame.rejected), (reply.len(), &private_data[..], false));
            assert_eq!((frame.revision, frame.enhanced.is_some()), (request.revision, request.enhanced));
            assert_eq!(negotiated.crc, request.crc || own.crc);
            assert_eq!(frame.crc, negotiated.crc);
            assert_eq!((negotiated.markers_tx, negotiated.markers_rx), (request.markers, own.markers));
            assert!(negotiated.ird <= own.max_ird.max(own.ird) && negotiated.ord <= own.ord);
            if let Some(peer_ird) = request.peer_ird.filter(|ird| *ird != ULP_NEGOTIATES) {
                assert!(negotiated.ord <= peer_ird);
            }
            assert_eq!(negotiated.rtr.is_some(), request.peer_to_peer);
        }
        Err(misuse) => assert!(!misuse.to_string().is_empty()),
    }
    if let Ok(reply) = request.reject(&own, &private_data) {
        let mut initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
        let Ok(InitiatorStep::Rejected { private_data: told, used, .. }) = initiator.handle(&reply) else {
            panic!("a reject of our own is none");
        };
        assert_eq!((told, used), (private_data, reply.len()));
    }
}

fn answered(stream: &[u8], input: &Input) {
    let own = input.initiator.config();
    let Ok(mut initiator) = Initiator::new(&own, &input.initiator.private_data(600)) else { return };
    match initiator.handle(stream) {
        Ok(InitiatorStep::Accepted { negotiated, used, .. }) => {
            assert!(used <= stream.len());
            assert!(
                negotiated.enhanced == own.peer_to_peer
                    || !negotiated.enhanced
                    || own.revision == Revision::Two
            );
            sound(&negotiated, &own);
        }
        Ok(InitiatorStep::Rejected { used, .. }) => assert!(used <= stream.len()),
        Ok(InitiatorStep::Need { total }) => {
            assert!(total > stream.len());
            assert!(!initiator.closed(stream).to_string().is_empty());
        }
        Err(error) => {
            // RFC 6581 §8: a Terminate can be sent only once its framing is known.
            assert!(error.terminate().is_none() || initiator.tx().is_some());
        }
    }
}

/// Checks that an initiator's outcome is within its own limits.
fn sound(negotiated: &Negotiated, own: &StartupConfig) {
    assert!(negotiated.ird <= own.max_ird.max(own.ird));
    assert!(negotiated.ord <= own.ord.max(1));
    assert_eq!(negotiated.markers_rx, own.markers);
    assert!(negotiated.crc || !own.crc);
    match negotiated.rtr {
        Some(rtr) => assert!(own.peer_to_peer && own.rtr.contains(rtr)),
        None => assert!(!own.peer_to_peer || !negotiated.enhanced),
    }
    // A Read as RTR needs an entry in the Read queue.
    assert!(negotiated.rtr != Some(rddp_mpa::Rtr::Read) || negotiated.ord > 0);
}

/// Two ends of ours: they arrive at the same parameters, or the initiator says why not.
fn two_ends(input: &Input) {
    let (wish, own) = (input.initiator.config(), input.responder.config());
    let sent = input.initiator.private_data(509);
    let Ok(mut initiator) = Initiator::new(&wish, &sent) else { return };
    let Ok(ResponderStep::Request { request, used }) = Responder::new().handle(initiator.request()) else {
        panic!("a Request of our own is none");
    };
    assert_eq!((used, &request.private_data), (initiator.request().len(), &sent));
    let told = input.responder.private_data(509);
    let Ok((reply, passive)) = request.accept(&own, &told) else { return };
    match initiator.handle(&reply) {
        Ok(InitiatorStep::Accepted { negotiated: active, private_data, used }) => {
            assert_eq!((used, private_data), (reply.len(), told));
            agree(&active, &passive, &request);
            sound(&active, &wish);
        }
        Err(StartupError::NoCommonRtr { named, offered }) => {
            let common = named.and(offered);
            assert!(common.is_empty() || common == RtrSet { read: true, ..RtrSet::NONE });
        }
        Err(StartupError::InsufficientIrd { ord, max_ird }) => assert!(ord > max_ird),
        other => panic!("{other:?}"),
    }
}

fn agree(active: &Negotiated, passive: &Negotiated, request: &Request) {
    assert_eq!(
        (active.revision, active.enhanced, active.crc),
        (passive.revision, passive.enhanced, passive.crc)
    );
    assert_eq!((active.tx(), active.rx()), (passive.rx(), passive.tx()));
    assert_eq!(active.rtr.is_some(), passive.rtr.is_some());
    assert_eq!(active.rtr, passive.rtr);
    if active.enhanced {
        // RFC 6581 §9.1: neither end has more Reads outstanding than the other takes, unless the
        // ULPs settle the depths.
        if request.peer_ord != Some(ULP_NEGOTIATES) {
            assert!(active.ord <= passive.ird);
        }
        if request.peer_ird != Some(ULP_NEGOTIATES) && active.peer_ord != Some(ULP_NEGOTIATES) {
            assert!(passive.ord <= active.ird);
        }
    }
}

/// Checks that a byte stream's end says the same however much has come, once it needs no more.
fn shaken(mut end: Handshake, stream: &[u8]) {
    let whole = end.step(stream);
    for len in 0..stream.len().min(20 + MAX_PRIVATE_DATA) {
        match end.step(&stream[..len]) {
            Progress::Need { total } => {
                assert!(total > len && total <= 20 + MAX_PRIVATE_DATA);
                let closed = end.closed(&stream[..len]);
                assert!(matches!(closed, Progress::Plain | Progress::Refused(_)), "{closed:?}");
            }
            early => assert_eq!(early, whole, "{len} octets"),
        }
    }
    let is_initiator = !end.request().is_empty();
    assert!(whole != Progress::Plain || !is_initiator, "its Request has gone out");
}

/// Two ends of byte streams: each direction is framed alike at both.
fn two_shake_hands(mut active: Handshake, mut passive: Handshake, input: &Input) {
    let request = active.request().to_vec();
    let Progress::Asked(asked) = passive.step(&request) else { panic!("a Request of our own is none") };
    assert_eq!(
        (asked.private_data(), asked.used),
        (&request[request.len() - asked.private_data().len()..], request.len())
    );
    let told = input.responder.private_data(509);
    if let Ok((reply, at_passive)) = asked.accept(&told) {
        match active.step(&reply) {
            Progress::Accepted { agreed, private_data, used } => {
                assert_eq!((private_data, used), (&told[..], reply.len()));
                assert_eq!(agreed.outgoing.framing(), at_passive.terms.framing());
                assert_eq!(at_passive.outgoing.framing(), agreed.terms.framing());
                assert!(at_passive.first.is_none() && !at_passive.at.rtr_read);
                assert!(agreed.first.is_some() || agreed.outgoing.msn == 1);
            }
            Progress::Refused(refused) => assert!(refused.terminate.is_some(), "{refused:?}"),
            other => panic!("{other:?}"),
        }
    }
    if let Ok((reply, at_passive)) = asked.reject() {
        let Progress::Rejected { afterwards, used, .. } = active.step(&reply) else {
            panic!("a reject of our own is none")
        };
        assert_eq!(used, reply.len());
        assert_eq!(at_passive == Afterwards::Open, afterwards == Afterwards::Open);
    }
}

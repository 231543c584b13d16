//! Messages that the connection itself sends, each in one FPDU: the first one of an initiator, and
//! the Terminate (RFC 5044 §7.1.2, RFC 6581 §9.2, RFC 5040 §5.4).

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{Framer, Rtr};
use rddp_rdmap::{Opcode, ReadRequestRepr, TerminateRepr, tagged_header, untagged_header};

/// A message of one segment, with octets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMessage {
    /// Header of its only segment.
    pub header: Header,
    payload: [u8; PAYLOAD_MAX],
    len: usize,
}

impl OwnMessage {
    /// The longest FPDU of such a message, without markers.
    pub const MAX_FPDU: usize = rddp_mpa::fpdu_len(Header::MAX_LEN + PAYLOAD_MAX);

    /// Returns the first FPDU of an initiator, as both ends have agreed (RFC 6581 §9.2). The peer's
    /// MPA alone notices it.
    ///
    /// An untagged one takes the first MSN of its queue. A Read is outstanding until its Response
    /// has come, which the driver notes by [`issue_read`](rddp_rdmap::Stream::issue_read) with a
    /// size of 0.
    #[must_use]
    pub fn ready_to_receive(rtr: Rtr) -> Self {
        match rtr {
            Rtr::Write => Self::empty_write(),
            Rtr::Send => Self::new(untagged_header(Opcode::Send, Stag(0), Msn::FIRST, 0, true), &[]),
            Rtr::Read => {
                let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn::FIRST, 0, true);
                let nowhere = Stag(0);
                let read =
                    ReadRequestRepr { sink_stag: nowhere, sink_to: 0, size: 0, src_stag: nowhere, src_to: 0 };
                Self::new(header, &read.octets())
            }
        }
    }

    /// Returns a Write of no octets, which names no buffer (RFC 5041 §5.2) and completes nothing.
    #[must_use]
    pub fn empty_write() -> Self {
        Self::new(tagged_header(Opcode::Write, Stag(0), 0, true), &[])
    }

    /// Returns the one Terminate of a stream, the first message of its queue (RFC 5040 §5.4).
    #[must_use]
    pub fn terminate(terminate: &TerminateRepr) -> Self {
        let header = untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true);
        Self::new(header, terminate.octets().as_ref())
    }

    fn new(header: Header, octets: &[u8]) -> Self {
        let mut payload = [0; PAYLOAD_MAX];
        payload[..octets.len()].copy_from_slice(octets);
        Self { header, payload, len: octets.len() }
    }

    /// Returns the octets behind the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload[..self.len]
    }

    /// Returns the length of the message's FPDU as the next one of this direction.
    #[must_use]
    pub fn fpdu_len(&self, framer: &Framer) -> usize {
        framer.fpdu_len(self.header.len() + self.len)
    }

    /// Writes the message's FPDU over all of `out`, which has [`fpdu_len`](Self::fpdu_len) octets.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn emit(&self, framer: &mut Framer, out: &mut [u8]) {
        let fill = |offset: usize, dst: &mut [u8]| {
            dst.copy_from_slice(&self.payload[offset..offset + dst.len()]);
        };
        framer.emit_into(&self.header.octets(), self.len, fill, out);
    }
}

const PAYLOAD_MAX: usize = TerminateRepr::MAX_LEN;

#[cfg(test)]
mod tests {
    use rddp_ddp::UntaggedRepr;
    use rddp_mpa::{Deframer, Framing, Step};
    use rddp_rdmap::{
        Event, Fault, Offending, Place, Response, Stream, StreamConfig, parse_header, terminate_for,
    };

    use super::*;

    /// Returns the effect of a message on the peer's stream.
    fn received(message: &OwnMessage, framing: Framing, stream: &mut Stream) -> (Place, Event) {
        let mut framer = Framer::new(framing);
        let mut fpdu = vec![0xee; message.fpdu_len(&framer)];
        message.emit(&mut framer, &mut fpdu);
        assert_eq!(framer.position(), fpdu.len() as u64);
        let Ok(Step::Fpdu { ulpdu, used }) = Deframer::new(framing).step(&mut fpdu) else {
            panic!("a whole FPDU");
        };
        assert_eq!(used, fpdu.len());
        let header = parse_header(&fpdu[ulpdu.clone()]).unwrap();
        let payload = &fpdu[ulpdu][header.len()..];
        assert_eq!((header, payload), (message.header, message.payload()));
        let place = stream.accept(&header, payload.len(), &mut || Some(0)).unwrap();
        let control = if place == Place::Control { payload } else { &[] };
        (place, stream.commit(&header, payload.len(), control).unwrap())
    }

    fn stream() -> Stream {
        Stream::new(StreamConfig { ird: 1, ord: 1, extensions: false })
    }

    fn framings() -> impl Iterator<Item = Framing> {
        [(false, false), (false, true), (true, false), (true, true)]
            .into_iter()
            .map(|(crc, markers)| Framing { crc, markers })
    }

    #[test]
    fn every_first_fpdu_is_a_message_without_octets() {
        // RFC 6581 §9.2
        for framing in framings() {
            let first =
                |rtr, stream: &mut Stream| received(&OwnMessage::ready_to_receive(rtr), framing, stream);
            assert_eq!(first(Rtr::Write, &mut stream()), (Place::Nothing, Event::WriteDone));
            let received = Event::Received { length: 0, invalidate: None, solicited: false };
            assert_eq!(first(Rtr::Send, &mut stream()), (Place::Nothing, received));
            let mut stream = stream();
            assert_eq!(first(Rtr::Read, &mut stream), (Place::Control, Event::InboundRequest));
            assert!(matches!(stream.next_response(), Some(Response::Read(read)) if read.request.size == 0));
        }
    }

    #[test]
    fn a_terminate_ends_the_peers_stream_with_all_it_says() {
        // RFC 5040 §4.8, §5.4
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(3), 0, true);
        let fault = Fault::read_source(rddp_rdmap::AccessError::Bounds);
        let read = ReadRequestRepr { sink_stag: Stag(1), sink_to: 2, size: 3, src_stag: Stag(4), src_to: 5 };
        let offending = Offending { read_request: Some(read), ..Offending::new(header, 28) };
        let terminate = terminate_for(&fault, Some(&offending));
        for framing in framings() {
            let message = OwnMessage::terminate(&terminate);
            assert_eq!(
                message.fpdu_len(&Framer::new(Framing { markers: false, ..framing })),
                OwnMessage::MAX_FPDU
            );
            let (_, event) = received(&message, framing, &mut stream());
            assert_eq!(event, Event::Terminated(terminate.clone()));
        }
    }

    #[test]
    fn untagged_messages_are_the_first_of_their_queue() {
        // RFC 5041 §4.3
        let queue_of = |message: OwnMessage| match message.header {
            Header::Untagged(UntaggedRepr { qn, msn: Msn(1), mo: 0, last: true, .. }) => Some(qn.0),
            Header::Untagged(header) => panic!("{header:?}"),
            Header::Tagged(_) => None,
        };
        assert_eq!(queue_of(OwnMessage::ready_to_receive(Rtr::Write)), None);
        assert_eq!(queue_of(OwnMessage::ready_to_receive(Rtr::Send)), Some(0));
        assert_eq!(queue_of(OwnMessage::ready_to_receive(Rtr::Read)), Some(1));
        let code = rddp_rdmap::TerminateCode::LOCAL_CATASTROPHIC;
        assert_eq!(queue_of(OwnMessage::terminate(&TerminateRepr::bare(code))), Some(2));
    }
}

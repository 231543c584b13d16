//! A short message on an idle connection: it is framed on the stack and handed to TCP at once.
//!
//! Such a message needs no train, and its request no place in the send queue. The queue decides
//! about all that is not so plain: until TCP has taken an octet nothing has changed, so a request
//! that cannot be sent here, or fails, is posted there as any other, with the same result.

use std::io;
use std::os::fd::BorrowedFd;

use rddp_ddp::Header;
use rddp_mpa::{Framer, MIN_MULPDU, fpdu_len};
use rddp_rdma::{Gather, Operation, SendWr};
use rddp_rdmap::{SEND_QUEUE, SendCounters};
use rddp_stat::Counter;

use super::build::{SMALL, immediate_header, send_header, write_header};
use super::link::Link;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::sq::message_len;
use crate::trace;
use crate::wire::Watch;

/// Longest payload of a short message.
const MAX_PAYLOAD: usize = 1024;

/// The part of a short message that TCP took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Whole,
    /// The rest waits for TCP, and the request in the queue for the rest.
    Begun,
}

/// A message of one segment.
struct Message<'a> {
    header: Header,
    payload: Payload<'a>,
    payload_len: usize,
    /// The numbers of the messages behind it.
    msns: SendCounters,
}

enum Payload<'a> {
    Gather(&'a Gather),
    Immediate(&'a [u8]),
}

/// An FPDU, and the state of MPA behind it.
struct Framed<'a> {
    octets: &'a [u8],
    framer: Framer,
}

impl Link {
    /// Sends a request's message, if it is short and the connection has nothing else to send. `tcp`
    /// is the call that hands octets to the socket. Returns how much TCP took; `None` if nothing,
    /// and then nothing has changed.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        wr: &SendWr,
        tcp: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Option<Sent> {
        if watch.blocked || !self.is_idle_for(wr) || !cx.sq.is_idle() {
            return None;
        }
        let message = Message::of(wr, self.msns)?;
        if message.payload_len <= SMALL {
            // An array of its own, as there is less to clear.
            return self.send_message(watch, cx, wr, &message, &mut [0; fpdu_len(MIN_MULPDU)], tcp);
        }
        // An FPDU that fills a segment also ends it (RFC 5044 §5.1), which is a train's affair.
        if message.fpdu_len() >= self.emss() {
            return None;
        }
        self.send_message(watch, cx, wr, &message, &mut [0; fpdu_len(Header::MAX_LEN + MAX_PAYLOAD)], tcp)
    }

    /// Returns whether nothing stands before this request on the connection, which takes short
    /// messages.
    #[inline]
    fn is_idle_for(&self, wr: &SendWr) -> bool {
        let waits_for_reads = wr.read_fence && self.stream.outstanding() > 0;
        self.may_send
            && self.out.is_empty()
            && self.stream.inbound() == 0
            && !waits_for_reads
            && self.takes_short
    }

    /// Sends a message by way of `room`: see [`send_short`](Self::send_short).
    #[inline]
    fn send_message(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        wr: &SendWr,
        message: &Message<'_>,
        room: &mut [u8],
        tcp: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> Option<Sent> {
        let framed = message.frame(cx.attrs, &self.framer, room)?;
        let taken = tcp(self.fd(), framed.octets).ok().filter(|taken| *taken > 0)?;
        self.msns = message.msns;
        Some(self.go_on_behind_short(watch, cx, wr, framed, taken))
    }

    /// Goes on behind a message of which TCP has taken `taken` octets.
    fn go_on_behind_short(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        wr: &SendWr,
        framed: Framed<'_>,
        taken: usize,
    ) -> Sent {
        let total = framed.octets.len();
        cx.tally.add(Counter::SendCalls, 1);
        cx.tally.add(Counter::FpdusSent, 1);
        cx.tally.add(Counter::OctetsSent, taken as u64);
        trace::train(cx.attrs.num, total, taken);
        self.framer = framed.framer;
        // As behind a train: messages of this end have had their turn before Responses.
        self.answered = 0;
        if taken == total {
            cx.complete_unqueued(wr);
            return Sent::Whole;
        }
        cx.sq.push_begun(wr);
        self.out.keep(framed.octets[taken..].to_vec());
        self.unaligned += total;
        self.note_taken(watch, cx, taken, total);
        Sent::Begun
    }
}

impl<'a> Message<'a> {
    /// Returns the message of a request, if it is a short one that may be posted. `msns` has the
    /// number of the next message.
    #[inline]
    fn of(wr: &'a SendWr, mut msns: SendCounters) -> Option<Self> {
        let (header, payload) = match &wr.operation {
            Operation::Send { gather, invalidate } => {
                let msn = msns.next(SEND_QUEUE);
                (send_header(*invalidate, wr.solicited, msn, 0, true), Payload::Gather(gather))
            }
            Operation::Write { gather, remote } => (write_header(*remote, 0, true), Payload::Gather(gather)),
            Operation::Immediate { data } => {
                (immediate_header(wr.solicited, msns.next(SEND_QUEUE)), Payload::Immediate(data))
            }
            _ => return None,
        };
        let payload_len = payload.len().filter(|len| *len <= MAX_PAYLOAD)?;
        Some(Message { header, payload, payload_len, msns })
    }

    /// Returns the length of the message's FPDU in octets.
    fn fpdu_len(&self) -> usize {
        fpdu_len(self.header.len() + self.payload_len)
    }

    /// Makes the message's FPDU at the front of `room`. Returns `None` if the program may not send
    /// the payload, or it is gone.
    fn frame<'r>(&self, attrs: &QpAttributes, framer: &Framer, room: &'r mut [u8]) -> Option<Framed<'r>> {
        let octets = &mut room[..self.fpdu_len()];
        let mut framer = framer.clone();
        let mut is_copied = true;
        // RFC 5044 §4.4: the CRC is taken over this copy, so it is that of the octets that leave.
        let fill = |_: usize, out: &mut [u8]| is_copied = self.payload.copy_to(attrs, out);
        framer.emit_into(&self.header.octets(), self.payload_len, fill, octets);
        is_copied.then_some(Framed { octets, framer })
    }
}

impl Payload<'_> {
    /// Returns the length in octets, unless the request is refused when it is posted.
    #[inline]
    fn len(&self) -> Option<usize> {
        match self {
            Payload::Gather(gather) => usize::try_from(message_len(gather).ok()?).ok(),
            Payload::Immediate(data) => Some(data.len()),
        }
    }

    /// Copies the payload, which has the length of `out`. Returns whether the program may send all
    /// of it, and all of it is there.
    #[inline]
    fn copy_to(&self, attrs: &QpAttributes, out: &mut [u8]) -> bool {
        let octets = match self {
            Payload::Gather(Gather::List(list)) => return attrs.copy_gathered(list, out),
            Payload::Gather(Gather::Inline(octets)) => octets,
            Payload::Immediate(data) => *data,
        };
        out.copy_from_slice(octets);
        true
    }
}

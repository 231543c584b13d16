//! A QP's connection: the TCP socket and the three protocols' state on it.

use std::cell::Cell;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use rddp_ddp::{Header, Stag};
use rddp_iwarp::{OwnMessage, Segments, Termination};
use rddp_mpa::{Deframer, Framer, Framing, MpaError, Negotiated, Rtr};
use rddp_rdmap::{Fault, Place, SendCounters, Stream, StreamConfig, TerminateRepr};

use super::arena::Arena;
use crate::config::ConnectOptions;
use crate::conn::reset::reset;
use crate::conn::socket::TcpSocket;
use crate::mem::{Faulted, Verdicts};

/// How long closing or terminating may take before TCP is reset.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The segment size to go by when TCP does not tell.
const DEFAULT_EMSS: usize = 1460;

/// When the first nudge goes out; each later one after twice the time.
const FIRST_NUDGE: Duration = Duration::from_millis(100);

/// How many there are.
const NUDGES: u32 = 5;

/// Short FPDUs in a row that end a stream of large ones.
const BULK_GAP: u8 = 4;

/// The id of the Read that a Read RTR is; no work request has it.
pub(super) const RTR_ID: u64 = u64::MAX;

/// Octets that TCP has been promised: whole FPDUs, or the rest of one it has begun.
///
/// The memory is the thread's while nothing waits: an idle connection has none.
#[derive(Debug, Default)]
pub(super) struct OutBuffer {
    octets: Arena,
    taken: usize,
}

thread_local! {
    /// What the last buffer that ran empty in this thread leaves to the next that needs one.
    static SPARE: Cell<Arena> = const { Cell::new(Arena::new()) };
}

impl OutBuffer {
    pub(super) fn rest(&self) -> &[u8] {
        self.octets.get(self.taken..self.octets.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.octets.len()
    }

    /// Appends one FPDU: see [`Arena::emit`].
    pub(super) fn emit(
        &mut self,
        framer: &mut Framer,
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]) -> Result<(), Faulted>,
    ) -> Result<(), Faulted> {
        self.prepare();
        self.octets.emit(framer, header, payload_len, fill)
    }

    /// Room for octets that are promised now.
    #[cfg(test)]
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.prepare();
        self.octets.room(len)
    }

    fn prepare(&mut self) {
        if self.octets.capacity() == 0 {
            self.octets = SPARE.try_with(Cell::take).unwrap_or_default();
        }
    }

    /// Appends the rest of an FPDU that TCP has begun to take.
    pub(super) fn keep(&mut self, rest: Vec<u8>) {
        if self.octets.capacity() == 0 {
            self.octets = Arena::of(rest);
        } else {
            self.octets.append(&rest);
        }
    }

    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.is_empty() {
            self.taken = 0;
            leave(std::mem::take(&mut self.octets));
        }
    }

    /// TCP takes no more now, perhaps for long: keeps no more memory than the octets need. How much that is.
    pub(super) fn settle(&mut self) -> usize {
        if self.octets.capacity() > 2 * self.rest().len() {
            let rest = Arena::of(self.rest().to_vec());
            self.taken = 0;
            leave(std::mem::replace(&mut self.octets, rest));
        }
        self.octets.capacity()
    }
}

/// Leaves memory to the next that needs some, if it is more than what is there.
fn leave(mut arena: Arena) {
    arena.clear();
    // A thread that ends leaves nothing.
    let _ = SPARE.try_with(|place| {
        let spare = place.take();
        place.set(if arena.capacity() > spare.capacity() { arena } else { spare });
    });
}

/// An FPDU whose payload is being received straight into registered memory.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) header: Header,
    pub(super) ulpdu_len: usize,
    pub(super) place: Place,
    /// Payload octets that are there.
    pub(super) got: usize,
    /// Payload octets at the end that are staged, and placed when all is here.
    pub(super) staged: usize,
    /// CRC over the length field, the header and those.
    pub(super) crc: u32,
}

impl Direct {
    pub(super) fn payload_len(&self) -> usize {
        self.ulpdu_len - self.header.len()
    }

    /// Payload octets that are received into their place.
    pub(super) fn direct_len(&self) -> usize {
        self.payload_len() - self.staged
    }
}

/// Writes of no octets for a peer that may have left our first FPDU unread: see [`ConnectOptions::nudge`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Nudge {
    sent: u32,
    pub(super) due: Instant,
}

impl Nudge {
    fn first() -> Self {
        Nudge { sent: 0, due: Instant::now() + FIRST_NUDGE }
    }

    fn next(self) -> Option<Self> {
        let sent = self.sent + 1;
        (sent < NUDGES).then(|| Nudge { sent, due: self.due + FIRST_NUDGE * (1 << sent) })
    }
}

/// Whether a Read that is our RTR is on its way. Its Response may not arrive in a graceful close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RtrRead {
    None,
    Out,
    /// The program has asked for a graceful close meanwhile.
    OutBeforeClose,
}

/// What a connection is doing about its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Our FIN shall go out behind everything in `out`.
    pub(super) fin_due: bool,
    /// It has.
    pub(super) fin_sent: bool,
    /// The peer's FIN has come.
    pub(super) peer_done: bool,
    /// Octets thrown away since a Terminate.
    pub(super) discarded: usize,
}

#[derive(Debug)]
pub(super) struct Link {
    /// Shared with threads that are asleep on it.
    pub(super) socket: Arc<TcpSocket>,
    /// It is in the background thread's set.
    pub(super) watched: bool,
    pub(super) negotiated: Negotiated,
    pub(super) stream: Stream,
    pub(super) msns: SendCounters,
    pub(super) framer: Framer,
    pub(super) deframer: Deframer,
    /// RFC 5044 §7.1.2: a responder sends no FPDU before it has received one.
    pub(super) may_send: bool,
    /// No more of Responses is prepared until a message of this side's own
    /// has gone, or none can go.
    pub(super) own_turn: bool,
    /// Octets of Responses prepared since messages of this side's own last had their turn.
    pub(super) answered: usize,
    pub(super) place_before_crc: bool,
    /// What is known of the memory that was sent last.
    pub(super) verdicts: Verdicts,
    pub(super) out: OutBuffer,
    /// Octets from where a TCP segment began to the end of `out`.
    pub(super) unaligned: usize,
    /// Memory of `out` that the device's budget counts.
    pub(super) kept: usize,
    /// Octets at the front of the next FPDU that are here already.
    pub(super) partial: Vec<u8>,
    /// When the FPDU began to arrive that `partial` is of, and how many had come before it.
    pub(super) partial_begun: Option<(u64, Instant)>,
    pub(super) direct: Option<Direct>,
    /// A ULPDU that waits for a receive: see `parked`.
    pub(super) parked: Option<Vec<u8>>,
    /// Not 0: large payloads arrive that may be placed directly. Little is staged, so that they are.
    bulk: u8,
    /// The kernel found memory of the next write that has gone bad: see
    /// [`Train`](super::train::Train).
    pub(super) copies_next: bool,
    /// TCP did not take all of the last write.
    pub(super) blocked: bool,
    /// The epoll sets look for room to send.
    pub(super) wants_room: bool,
    /// It waits for memory: see [`QpInner::must_rest`](super::QpInner::must_rest).
    /// Nobody looks for octets meanwhile.
    pub(super) resting: bool,
    /// What the epoll sets were last told to look for.
    pub(super) interest: EpollFlags,
    pub(super) ending: Ending,
    pub(super) nudge: Option<Nudge>,
    /// Of a Read that is our RTR: not answered yet, and what is to follow.
    pub(super) rtr: RtrRead,
    pub(super) deadline: Option<Instant>,
}

impl Link {
    pub(super) fn new(
        socket: TcpSocket,
        negotiated: Negotiated,
        options: &ConnectOptions,
        active: bool,
    ) -> Self {
        let config = StreamConfig {
            ird: u32::from(negotiated.ird),
            ord: u32::from(negotiated.ord),
            extensions: options.extensions,
        };
        let crc = negotiated.crc;
        let mut link = Link {
            stream: Stream::new(config),
            msns: SendCounters::default(),
            framer: Framer::new(Framing { crc, markers: negotiated.markers_tx }),
            deframer: Deframer::new(Framing { crc, markers: negotiated.markers_rx }),
            may_send: active,
            own_turn: false,
            answered: 0,
            place_before_crc: options.place_before_crc,
            verdicts: Verdicts::default(),
            out: OutBuffer::default(),
            unaligned: 0,
            kept: 0,
            partial: Vec::new(),
            partial_begun: None,
            direct: None,
            parked: None,
            bulk: 0,
            copies_next: false,
            blocked: false,
            wants_room: false,
            resting: false,
            interest: EpollFlags::EPOLLIN,
            ending: Ending::default(),
            rtr: RtrRead::None,
            nudge: (active && options.nudge).then(Nudge::first),
            deadline: None,
            socket: Arc::new(socket),
            watched: false,
            negotiated,
        };
        if active && let Some(rtr) = link.negotiated.rtr {
            link.push_rtr(rtr);
        }
        link
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The effective MSS now. It may change during a connection, so it is asked anew for each train.
    pub(super) fn emss(&self) -> usize {
        self.socket.tcp_mss().map_or(DEFAULT_EMSS, |mss| mss as usize)
    }

    /// The largest ULPDU at this EMSS.
    pub(super) fn mulpdu(&self, emss: usize) -> usize {
        rddp_mpa::mulpdu(emss, self.negotiated.markers_tx)
    }

    /// How FPDUs come to lie in the segments of the next write. With markers they vary in length: no attempt is made.
    pub(super) fn segments(&self, emss: usize) -> Segments {
        if self.negotiated.markers_tx {
            return Segments::default();
        }
        Segments::new(emss, if self.out.is_empty() { 0 } else { self.unaligned })
    }

    /// Whether a payload may be received into its place before its CRC was checked.
    pub(super) fn may_place_directly(&self, place: Place) -> bool {
        // Markers stand in the payload.
        if self.negotiated.markers_rx {
            return false;
        }
        match place {
            Place::Write { .. } => !self.negotiated.crc || self.place_before_crc,
            // Nobody may look there before delivery.
            Place::Receive { .. } | Place::Sink { .. } => true,
            Place::Nothing | Place::Control | Place::Dropped => false,
        }
    }

    /// Notes whether an FPDU has come that is better placed directly. A short one now and then, as at the end of a message,
    /// changes nothing.
    pub(super) fn note_size(&mut self, large: bool) {
        self.bulk = if large { BULK_GAP } else { self.bulk.saturating_sub(1) };
    }

    /// Whether more such FPDUs are likely to come.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk > 0
    }

    /// Queues one FPDU of octets of our own.
    pub(super) fn push_own(&mut self, header: &Header, payload: &[u8]) {
        let fill = |offset: usize, out: &mut [u8]| {
            out.copy_from_slice(&payload[offset..offset + out.len()]);
            Ok(())
        };
        self.unaligned += self.framer.fpdu_len(header.len() + payload.len());
        // Octets of our own do not go bad.
        let _ = self.out.emit(&mut self.framer, header.octets().as_ref(), payload.len(), fill);
    }

    /// Queues a Terminate.
    pub(super) fn push_terminate(&mut self, terminate: &TerminateRepr) {
        let message = OwnMessage::terminate(terminate);
        self.push_own(&message.header, message.payload());
    }

    /// Ends a connection that this end cannot take up, although the Reply was good (RFC 6581 §9.3).
    /// A responder may not send before the first FPDU has come: it just closes. A courtesy: the
    /// connection is over whatever becomes of it.
    pub(super) fn refuse(&mut self) {
        let fault = Fault::mpa(MpaError::LocalCatastrophic.code());
        if let Termination::Terminate(terminate) = Termination::of(&fault, None, self.may_send) {
            self.push_terminate(&terminate);
            let _ = self.socket.send_with_flags(self.out.rest(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Queues the nudge that is due, and notes the next.
    pub(super) fn push_nudge(&mut self) {
        self.push_own(&OwnMessage::empty_write().header, &[]);
        self.nudge = self.nudge.and_then(Nudge::next);
    }

    /// RFC 6581 §9.2: the first FPDU of a peer-to-peer connection. Nothing but the peer sees it.
    fn push_rtr(&mut self, rtr: Rtr) {
        let first = OwnMessage::ready_to_receive(rtr);
        if let Header::Untagged(header) = first.header {
            self.msns.next(header.qn);
        }
        if rtr == Rtr::Read {
            self.rtr = RtrRead::Out;
            self.stream.issue_read(RTR_ID, Stag(0), 0, 0);
        }
        self.push_own(&first.header, first.payload());
    }

    /// Makes TCP reset the connection.
    pub(super) fn reset(&self) {
        reset(self.fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5042 §6.4.1: what a peer that does not read makes us keep is what it has been promised.
    #[test]
    fn what_is_kept_is_as_large_as_its_octets() {
        let mut out = OutBuffer::default();
        out.room(1 << 20).fill(7);
        out.take((1 << 20) - 10);
        assert_eq!((out.settle(), out.rest()), (10, &[7; 10][..]));
        out.keep(vec![8; 3]);
        assert_eq!(out.rest(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8]);
        assert!(out.settle() < 100);
        out.take(13);
        assert_eq!((out.is_empty(), out.settle()), (true, 0));
        // The large one was left for the next.
        out.room(1);
        assert_eq!(out.octets.capacity(), 1 << 20);
    }
}

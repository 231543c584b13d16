//! The iWARP wire of a connection: the TCP socket, and the three protocols' state on it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_ddp::Header;
use rddp_iwarp::{OwnMessage, Segments};
use rddp_mpa::{Deframer, Framer, Framing, LARGE_FPDU, MAX_ULPDU, Negotiated};
use rddp_rdma::ConnectOptions;
use rddp_rdmap::{Place, SendCounters, Stream, StreamConfig, TerminateRepr};

use super::acknowledge::Acknowledging;
use super::ahead::Ahead;
use super::direct::Direct;
use super::emss::Emss;
use super::ending::Ending;
use super::first::{Nudge, RtrRead};
use super::in_kernel::Confirmed;
use super::out::OutBuffer;
use super::train::MAX_ALIGNED;
use crate::conn::socket::DeviceSocket;
use crate::kernel::{Guided, KernelCounts, Placement};
use crate::mem::Verdicts;
use crate::queues::attributes::QpAttributes;

/// Short FPDUs in a row that end a stream of large ones.
const BULK_GAP: u8 = 4;

/// Time between the Reply and the first message of a responder that speaks first: siw refuses
/// octets that it finds right behind the Reply.
const BEFORE_SPEAKING_FIRST: Duration = Duration::from_millis(100);

/// The iWARP wire: its socket, the state of the three protocols on it, and what is half-way.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) socket: Arc<DeviceSocket>,
    pub(super) negotiated: Negotiated,
    pub(super) stream: Stream,
    pub(super) msns: SendCounters,
    pub(super) framer: Framer,
    pub(super) deframer: Deframer,
    /// RFC 5044 §7.1.2: a responder sends no FPDU before it has received one.
    pub(super) may_send: bool,
    /// A responder sends all the same, as its program asks; from this moment on, once the
    /// connection has started.
    pub(super) speaks_first: Option<Instant>,
    /// No more of the Responses is prepared until a message of this end has gone, or none can go.
    pub(super) own_turn: bool,
    /// Octets of Responses prepared since messages of this end last had their turn.
    pub(super) answered: usize,
    pub(super) place_before_crc: bool,
    /// The longest ULPDU that the peer takes whatever the EMSS; 0 if it takes none such.
    large: usize,
    /// Verdicts on the memory that was sent last.
    pub(super) verdicts: Verdicts,
    pub(super) out: OutBuffer,
    /// Octets of the Response at hand, if its source is a file.
    pub(super) ahead: Ahead,
    /// Octets of the message of this end that is being sent, if its source is a file.
    pub(super) own_ahead: Ahead,
    /// Octets from where a TCP segment began to the end of `out`.
    pub(super) unaligned: usize,
    /// Octets with which an aligned train is full.
    pub(super) most_aligned: usize,
    /// `None` before TCP was asked for the first time.
    emss: Option<Emss>,
    /// TCP took the last write in part, and may end a segment where it stopped: its rest ends one,
    /// so that what follows begins one (RFC 5044 §5.1).
    pub(super) slipped: bool,
    /// Memory of `out` and of what was read ahead that the device's budget counts.
    pub(super) kept: usize,
    /// Octets at the front of the next FPDU that are here already.
    pub(super) partial: Vec<u8>,
    /// The moment at which the FPDU in `partial` began to arrive, behind the number of FPDUs that
    /// had come before it.
    pub(super) partial_begun: Option<(u64, Instant)>,
    pub(super) direct: Option<Direct>,
    /// The connection's segments are placed by the kernel, too.
    pub(super) guided: Option<Guided>,
    pub(super) confirmed: Confirmed,
    /// Octets of the peer's Write that is arriving, and those of the last one that is all here.
    pub(super) writing: u32,
    pub(super) written: u32,
    /// A ULPDU that waits for a receive: see `parked`.
    pub(super) parked: Option<Vec<u8>>,
    /// Set if both ends acknowledge messages.
    pub(super) acknowledging: Option<Acknowledging>,
    /// Short messages need not be queued: nothing acknowledges them, and no markers stand in their
    /// payload.
    pub(super) takes_short: bool,
    /// More than 0 while large payloads arrive that may be placed directly: little is staged then,
    /// so that they are.
    bulk: u8,
    /// The kernel found memory of the next write that has gone bad: see
    /// [`Train`](super::train::Train).
    pub(super) copies_next: bool,
    pub(super) ending: Ending,
    pub(super) nudge: Option<Nudge>,
    /// The state of a Read that is our RTR.
    pub(super) rtr: RtrRead,
    /// The moment up to which a responder's peer has to send its first FPDU.
    pub(super) deadline: Option<Instant>,
    /// The next time to sum what the kernel has placed, and the pause before it.
    pub(super) sums: Option<(Instant, Duration)>,
    /// Makes the thread panic that receives the next octets.
    #[cfg(test)]
    pub(super) panics: bool,
}

impl Link {
    pub(crate) fn new(
        socket: Arc<DeviceSocket>,
        negotiated: Negotiated,
        options: &ConnectOptions,
        active: bool,
        acknowledges: bool,
    ) -> Self {
        // Where requests are acknowledged, a program says how many Reads it takes, and MPA may not
        // raise that to what the peer would like.
        let ird = if acknowledges { options.ird } else { negotiated.ird };
        let config = StreamConfig {
            ird: u32::from(ird),
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
            // An RTR that was agreed on comes by itself (RFC 6581 §5).
            speaks_first: (!active && options.speaks_first && negotiated.rtr.is_none())
                .then(|| Instant::now() + BEFORE_SPEAKING_FIRST),
            own_turn: false,
            answered: 0,
            place_before_crc: options.place_before_crc,
            large: if negotiated.large_fpdus { rddp_mpa::mulpdu(LARGE_FPDU, false) } else { 0 },
            verdicts: Verdicts::default(),
            out: OutBuffer::default(),
            ahead: Ahead::default(),
            own_ahead: Ahead::default(),
            unaligned: 0,
            most_aligned: MAX_ALIGNED,
            emss: None,
            slipped: false,
            kept: 0,
            partial: Vec::new(),
            partial_begun: None,
            direct: None,
            guided: None,
            confirmed: Confirmed::default(),
            writing: 0,
            written: 0,
            parked: None,
            acknowledging: acknowledges.then(Acknowledging::default),
            takes_short: !acknowledges && !negotiated.markers_tx,
            bulk: 0,
            copies_next: false,
            ending: Ending::default(),
            rtr: RtrRead::None,
            nudge: (active && options.nudge).then(Nudge::first),
            deadline: None,
            sums: None,
            #[cfg(test)]
            panics: false,
            socket,
            negotiated,
        };
        if active && let Some(rtr) = link.negotiated.rtr {
            link.push_rtr(rtr);
        }
        link
    }

    /// Returns what was agreed with the peer.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Has the kernel place what comes, where the QP has chosen that and it can be: FPDUs
    /// have to begin segments. Nothing has been read of the stream before.
    pub(crate) fn place_in_kernel(&mut self, attrs: &QpAttributes) {
        let Some(kernel) = &attrs.device.kernel else { return };
        // Acknowledged requests may have to wait, and the kernel would place what follows them.
        if attrs.placement == Placement::User || self.acknowledging.is_some() {
            return;
        }
        if !self.negotiated.markers_rx && !self.negotiated.large_fpdus {
            self.guided = kernel.guide(&self.socket, attrs, self.negotiated.crc);
        }
        if self.guided.is_none() {
            kernel.count_left();
        }
    }

    /// Returns what was counted where the kernel places.
    pub(crate) fn kernel_counts(&self) -> Option<KernelCounts> {
        self.guided.as_ref().map(Guided::counts)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the effective MSS.
    pub(crate) fn emss(&mut self) -> usize {
        let socket = &self.socket;
        self.emss.get_or_insert_with(|| Emss::of(socket)).get(socket)
    }

    /// Counts a write, of which TCP may have taken only a part, and behind which the EMSS may be
    /// another.
    pub(super) fn note_write(&mut self, octets: usize, cut: bool) {
        if let Some(emss) = &mut self.emss {
            emss.note_write(octets, cut);
        }
    }

    /// Returns the largest ULPDU at this EMSS, or the one that the peer has agreed to take.
    pub(super) fn mulpdu(&self, emss: usize) -> usize {
        rddp_mpa::mulpdu(emss, self.negotiated.markers_tx).max(self.large)
    }

    /// Makes FPDUs as long as MPA allows (RFC 5044 §3), as the programs have agreed. Returns false
    /// where the peer has asked for markers: then nothing changes.
    pub(crate) fn send_large_fpdus(&mut self) -> bool {
        let agrees = !self.negotiated.markers_tx;
        if agrees {
            self.large = MAX_ULPDU;
        }
        agrees
    }

    /// Returns whether FPDUs are to begin TCP segments. With markers they vary in length, and no
    /// attempt is made; large ones end anywhere.
    pub(super) fn is_aligned(&self) -> bool {
        !self.negotiated.markers_tx && self.large == 0
    }

    /// Returns the TCP segments that the FPDUs of the next write shall fit into.
    pub(super) fn segments(&self, emss: usize) -> Segments {
        if !self.is_aligned() {
            return Segments::default();
        }
        Segments::new(emss, if self.out.is_empty() { 0 } else { self.unaligned })
    }

    /// Returns whether a payload may be received into its place before its CRC was checked.
    pub(super) fn may_place_directly(&self, place: Place) -> bool {
        // Markers stand in the payload; and where the kernel places, too, the order of both is kept
        // FPDU by FPDU.
        if self.negotiated.markers_rx || self.guided.is_some() {
            return false;
        }
        match place {
            Place::Write { .. } => !self.negotiated.crc || self.place_before_crc,
            // Nobody may look there before delivery.
            Place::Receive { .. } | Place::Sink { .. } => true,
            Place::Nothing | Place::Control | Place::Dropped => false,
        }
    }

    /// Notes whether an FPDU has come that is better placed directly. A short one now and then, as
    /// at the end of a message, changes nothing.
    pub(super) fn note_size(&mut self, large: bool) {
        self.bulk = if large { BULK_GAP } else { self.bulk.saturating_sub(1) };
    }

    /// Returns whether more such FPDUs are likely to come.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk > 0
    }

    /// Queues one FPDU whose payload is the connection's own.
    pub(super) fn push_own(&mut self, header: &Header, payload: &[u8]) {
        let fill = |offset: usize, out: &mut [u8]| {
            out.copy_from_slice(&payload[offset..offset + out.len()]);
            Ok(())
        };
        self.unaligned += self.framer.fpdu_len(header.len() + payload.len());
        // Octets of our own do not go bad.
        let _ = self.out.push(&mut self.framer, header, payload.len(), fill);
    }

    /// Queues a Terminate.
    pub(super) fn push_terminate(&mut self, terminate: &TerminateRepr) {
        let message = OwnMessage::terminate(terminate);
        self.push_own(&message.header, message.payload());
    }
}

/// Accessors for tests of a queue pair.
#[cfg(test)]
impl Link {
    /// Numbers the messages that requests go in from `next` on, both ways.
    pub(crate) fn number_from(&mut self, next: rddp_ddp::Msn) {
        for qn in [rddp_ddp::Qn(0), rddp_ddp::Qn(1)] {
            self.stream.expect_msn(qn, next);
            self.msns.set(qn, next);
        }
    }

    /// Pretends that TCP has told this EMSS, good until then.
    pub(crate) fn pretend_emss(&mut self, octets: usize, until: Instant) {
        let socket = &self.socket;
        self.emss.get_or_insert_with(|| Emss::of(socket)).pretend(octets, until);
    }

    /// Returns whether TCP is asked for the EMSS behind a write of so many octets.
    pub(crate) fn asks_behind(&mut self, octets: usize) -> bool {
        self.note_write(octets, false);
        let asks = self.emss.as_ref().is_none_or(Emss::is_old);
        self.emss();
        asks
    }

    /// Returns the EMSS after a write of so many octets.
    pub(crate) fn emss_behind(&mut self, octets: usize) -> usize {
        self.note_write(octets, false);
        self.emss()
    }

    /// Makes the thread panic that reads the next octets.
    pub(crate) fn panic_at_octets(&mut self) {
        self.panics = true;
    }

    /// Promises TCP a Write of no octets, and does not send it.
    pub(crate) fn promise_write(&mut self) {
        self.push_own(&OwnMessage::empty_write().header, &[]);
    }

    /// Returns the number of octets of FPDUs that were made.
    pub(crate) fn position(&self) -> u64 {
        self.framer.position()
    }

    /// Returns the number of octets of Responses since messages of this end had their turn.
    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Returns the number of octets from where a TCP segment began to the end of what is promised.
    pub(crate) fn unaligned(&self) -> usize {
        self.unaligned
    }

    /// Returns how many octets wait for TCP that it has been promised.
    pub(crate) fn promised(&self) -> usize {
        self.out.owed().len()
    }
}

//! Reads of the peer's `SrcAvail`s.
//!
//! The octets of a Response are the next ones of the stream: nothing else with octets comes before
//! an advert is read and reported. So they stay in the kernel until a call of the program takes
//! them into its buffer, or a call that needs what is behind them moves them to the queue. Nobody's
//! memory is named on the wire, and a call may return at any time.

use std::time::Duration;

use libc::POLLIN;
use rddp_ddp::{Msn, Stag};
use rddp_rdmap::{Opcode, ReadRequestRepr, untagged_header};
use rddp_sdp::machine::{Machine, PeerSource};

use super::ZeroCopy;
use super::state::{READS, Zcopy, zcopy};
use crate::owed::owe_fpdu;
use crate::patience::Patience;
use crate::rooms::Room;
use crate::rx::BULK;
use crate::sdp::{counters, is_start};
use crate::state::{Phase, Rx};
use crate::sys::{Guard, random};

impl ZeroCopy<'_, '_> {
    /// Returns whether octets of the stream are to come by a Read that has begun.
    pub(crate) fn awaits_response(&self, rx: &mut Guard<'_, Rx>) -> bool {
        zcopy(rx).is_some_and(|(_, _, all)| all.adverts.reads.len() > 0)
    }

    /// Returns whether the octets that can be read are as many, and the first ones of an advert,
    /// the others of which are being Read. The kernel's socket is readable then when more comes.
    #[cold]
    pub(crate) fn is_start_alone(&self, octets: usize) -> bool {
        self.lock_rx().is_ok_and(|mut rx| {
            let in_kernel = in_front(&mut rx).filter(|_| octets == rx.left as usize);
            in_kernel.is_some_and(|octets| self.wake_at(&mut rx, octets + 1).is_ok())
        })
    }

    /// Returns whether the first octets of an advert are all that has come, and the others are
    /// being Read.
    pub(crate) fn has_start_alone(&self, rx: &mut Guard<'_, Rx>) -> bool {
        in_front(rx).is_some_and(|in_kernel| self.kernel.unread() == Ok(in_kernel))
    }

    /// Waits a moment for the Response to a Read that has begun, for a call that does not wait
    /// otherwise: the peer's send has returned, and over TCP its octets would be here. Returns
    /// whether something has come; the moment begins with the first wait.
    pub(crate) fn waits_for_response(&self, moment: &mut Option<Patience>) -> bool {
        let awaits = || self.lock_rx().is_ok_and(|mut rx| self.awaits_response(&mut rx));
        if self.state.phase() != Phase::Framed || !awaits() {
            return false;
        }
        let moment = moment.get_or_insert_with(|| Patience::new(false, Some(MOMENT)));
        !moment.is_over() && self.kernel.poll(POLLIN, moment.left()).is_ok_and(|ready| ready != 0)
    }

    /// Begins the Reads for which there is room. `room` is what the calling program has for more
    /// octets than it got. Returns whether there are any.
    pub(crate) fn begin_reads(&self, rx: &mut Guard<'_, Rx>, room: usize) -> bool {
        // The octets of a message that has begun come first.
        if rx.at.rtr_read || rx.sdp.is_in_message() {
            return false;
        }
        let mut has_begun = false;
        while let Some((source, of, size)) = self.next_read(rx, room) {
            if !self.begin_read(rx, source, of, size) {
                break;
            }
            has_begun = true;
        }
        has_begun
    }

    /// Returns what to read next: from where, into which room, how many octets.
    fn next_read(&self, rx: &mut Guard<'_, Rx>, room: usize) -> Option<(PeerSource, Room, usize)> {
        let ord = READS.min(rx.terms.ord as usize);
        let (rx, _, Zcopy { adverts, .. }) = zcopy(rx)?;
        let source = Machine::new(&mut rx.sdp.core, Some(&mut adverts.tables)).next_read()?;
        if adverts.reads.len() >= ord {
            return None;
        }
        let for_all = rx.rooms.free(Room::Reads);
        // What is outstanding is for this call as well.
        let for_call = match room.checked_sub(rx.rooms.charged(Room::Sinks)) {
            Some(left) if self.takes_much(room) => left.min(rx.rooms.free(Room::Sinks)),
            _ => 0,
        };
        let (of, free) = if for_call >= for_all { (Room::Sinks, for_call) } else { (Room::Reads, for_all) };
        let left = source.left as usize;
        let size = left.min(free).min(LONGEST);
        // A little room becomes more.
        (size > 0 && size >= left.min(SHORTEST)).then_some((source, of, size))
    }

    /// Returns whether a call with so much room reads from adverts, and offers itself to be written
    /// to, by the size of its buffer: no other process has the socket, which might take the octets.
    pub(super) fn takes_much(&self, room: usize) -> bool {
        room as u64 >= self.state.sink_threshold() && !self.state.is_held_by_others()
    }

    fn begin_read(&self, rx: &mut Guard<'_, Rx>, source: PeerSource, of: Room, size: usize) -> bool {
        let Ok(mut tx) = self.lock_tx() else { return false };
        let Some(sink_stag) = random() else { return false };
        let Some((rx, _, Zcopy { adverts, .. })) = zcopy(rx) else { return false };
        let size32 = size as u32;
        let request = ReadRequestRepr {
            sink_stag: Stag(sink_stag),
            sink_to: 0,
            size: size32,
            src_stag: Stag(source.stag),
            src_to: source.to,
        };
        let msn = Msn(rx.sdp.read_msn).next();
        let header = untagged_header(Opcode::ReadRequest, Stag(0), msn, 0, true);
        rx.set_changing(true);
        let room = tx.prepare_to_owe(REQUEST) && owe_fpdu(&mut tx, &header, &request.octets());
        if room {
            let mut machine = Machine::new(&mut rx.sdp.core, Some(&mut adverts.tables));
            let told = machine.reading(size32).is_ok();
            let noted = adverts.reads.push(sink_stag, size32, of) && rx.rooms.charge(of, size);
            debug_assert!(told && noted, "what is read was looked up before");
            rx.sdp.read_msn = msn.0;
            rx.guess.bulk = size >= BULK;
            self.state.sdp.count(counters::READ, size);
        }
        rx.set_changing(false);
        self.state.note_owed(&tx);
        room
    }
}

/// Returns how many octets of the kernel's are those of the FPDU in front, if they are the first
/// ones of an advert, the others of which are being Read.
fn in_front(rx: &mut Guard<'_, Rx>) -> Option<usize> {
    let may_be = rx.sdp.has_adverts == 1 && rx.held.is_empty() && !rx.left_is_kept;
    let left = rx.left as usize;
    (may_be && is_start(rx, left)).then_some(left + rx.trailer as usize)
}

/// Time for which a call that does not wait waits for a Response: a round trip, and not more than a
/// program may be held up.
const MOMENT: Duration = Duration::from_millis(10);
/// Most octets of a Read, so that reports keep a source's memory for no longer than it must.
const LONGEST: usize = 256 << 10;
/// Octets from which a Read of a part is worth its round trip.
const SHORTEST: usize = 16 << 10;
/// Room for an FPDU of a Read Request: length, header, the request, pad, CRC and a marker.
const REQUEST: usize = 2 + 18 + ReadRequestRepr::LEN + 3 + 4 + 4;

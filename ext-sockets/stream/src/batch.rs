//! The whole FPDUs at the front of some octets, taken in one turn, with their payload placed in the
//! program's memory.

use rddp_ddp::Header;
use rddp_iwarp::Trouble;
use rddp_rdmap::TerminateCode;

use super::inbound::{Inbound, Mark, Step};
use super::sdp::{Beside, Wrong};
use super::sink::Sink;

/// The whole FPDUs at the front of some octets.
pub(super) struct Batch {
    pub(super) used: usize,
    /// State after the last of them; `None` when there is none.
    pub(super) mark: Option<Mark>,
    /// Octets and state before the last FPDU.
    before: (usize, Option<Mark>),
    /// Octets of the first FPDU that the program has read.
    shown: usize,
    pub(super) left: Option<Left>,
    pub(super) largest: usize,
    /// Octets of the last FPDU.
    pub(super) last: usize,
    pub(super) replies: Replies,
    pub(super) stop: Stop,
}

/// Payload at `from..to` of an FPDU that ends at `end`, for which the sink had no room.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) end: usize,
}

/// Reason why a batch ends.
pub(super) enum Stop {
    /// The FPDU is to be looked at alone.
    Alone,
    Need(usize),
    Full,
    Terminated(TerminateCode),
    Trouble(Trouble),
    Wrong(Wrong),
}

impl Batch {
    #[inline(always)]
    pub(super) fn of<'s>(
        inbound: &mut Inbound,
        octets: &mut [u8],
        sink: &mut Sink<'_, '_>,
        shown: usize,
        beside: &mut impl Beside<'s>,
    ) -> Self {
        let stop = Stop::Need(0);
        let (before, replies) = ((0, None), Replies::default());
        let mut batch =
            Self { used: 0, mark: None, before, shown, left: None, largest: 0, last: 0, replies, stop };
        while batch.add(inbound, octets, sink, beside) {
            batch.mark = Some(inbound.mark());
        }
        batch
    }

    /// Adds the next FPDU; `false`, with the reason in `stop`, when none can be added.
    fn add<'s>(
        &mut self,
        inbound: &mut Inbound,
        octets: &mut [u8],
        sink: &mut Sink<'_, '_>,
        beside: &mut impl Beside<'s>,
    ) -> bool {
        // A full sink does not keep FPDUs without octets for the program from being taken.
        if self.left.is_some() || (self.largest > 0 && sink.room() == 0) || self.replies.is_full() {
            self.stop = Stop::Full;
            return false;
        }
        let at = self.used;
        let before = (at, self.mark);
        beside.mark();
        match inbound.step(&mut octets[at..], beside.look()) {
            Ok(Step::Need { total }) => self.stop = Stop::Need(total),
            Ok(Step::Data { payload, used }) => {
                let shown = if at == 0 { self.shown.min(payload.len()) } else { 0 };
                let (from, to) = (at + payload.start + shown, at + payload.end);
                // At the mark of an urgent octet a read stops.
                let stops = beside.look().is_some_and(|look| look.now.has_mark());
                let taken = if stops { 0 } else { sink.fill(&octets[from..to]) };
                if from + taken < to {
                    self.left = Some(Left { from: from + taken, to, end: at + used });
                    (self.before, self.shown) = (before, shown + taken);
                } else if let Some(look) = beside.look() {
                    look.now.consumed();
                }
                self.largest = self.largest.max(to - from);
                self.used += used;
                self.last = used;
                return true;
            }
            Ok(Step::Silent { used, reply }) => {
                if let Some(reply) = reply {
                    self.replies.push(reply);
                }
                self.used += used;
                self.last = used;
                return true;
            }
            Ok(Step::Terminated { used, code }) => {
                self.used += used;
                self.stop = Stop::Terminated(code);
            }
            Ok(Step::Aside { .. } | Step::Splice { .. } | Step::NeedsTables) => {
                beside.cut_back();
                self.stop = Stop::Alone;
            }
            Ok(Step::Wrong(wrong)) => {
                beside.cut_back();
                self.stop = Stop::Wrong(wrong);
            }
            Err(trouble) => self.stop = Stop::Trouble(trouble),
        }
        false
    }

    /// Leaves out the last FPDU, of which a part has been read; returns the length of that part.
    pub(super) fn leave_last(&mut self) -> u32 {
        (self.used, self.mark) = self.before;
        self.left = None;
        self.shown as u32
    }
}

/// Answers to the peer's Reads in a batch.
#[derive(Default)]
pub(super) struct Replies {
    headers: [Option<Header>; REPLIES],
    count: usize,
}

impl Replies {
    fn is_full(&self) -> bool {
        self.count == REPLIES
    }

    fn push(&mut self, header: Header) {
        self.headers[self.count] = Some(header);
        self.count += 1;
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = &Header> {
        self.headers[..self.count].iter().flatten()
    }
}

/// Most Reads that are answered in one batch.
const REPLIES: usize = 4;

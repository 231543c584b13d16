//! The crossings that the rules are about, in every order of few messages.
//!
//! Each end has a list of steps of its own, which it takes in order when it can; beside that, what
//! each end does by itself may happen at any time. All interleavings are gone through, each state
//! once; wherever nothing is left to do, everything must have drained.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use rddp_sdp::machine::{Config, Half};
use rddp_sdp::wire::Mode;

use crate::actions::Action;
use crate::random::{Dice, finish};
use crate::world::World;

/// Happens at any time.
const BY_THEMSELVES: [Action; 6] = [
    Action::Deliver,
    Action::Control,
    Action::Serve,
    Action::Recv { len: 1000 },
    Action::Resend { len: 1000, write: false },
    Action::Resend { len: 1000, write: true },
];

const PIPELINED: Action = Action::Mode { half: Half::Out, to: Mode::Pipelined };
const COMBINED: Action = Action::Mode { half: Half::Out, to: Mode::Combined };
const OFFER: Action = Action::Offer { len: 30, inline: 5 };
const READ: Action = Action::Read { len: 1000 };
const PART: Action = Action::Read { len: 7 };
const SEND: Action = Action::Send { len: 9, urgent: false };
const URGENT: Action = Action::Send { len: 1, urgent: true };
const WRITE: Action = Action::Write { len: 6 };
const ADVERTISE: Action = Action::Advertise { len: 20 };

struct Search {
    seen: HashSet<u64>,
    /// States in which nothing was left to do.
    ends: usize,
}

impl Search {
    fn visit(&mut self, world: &World, left: [&[Action]; 2]) {
        let mut hasher = DefaultHasher::new();
        (world, left).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        let mut moved = false;
        for at in [0, 1] {
            // A step that cannot be taken is left out, sooner or later: its rule forbids it here.
            if let [step, rest @ ..] = left[at] {
                let mut next = world.clone();
                let _ = next.act(at, *step);
                let mut left = left;
                left[at] = rest;
                self.visit(&next, left);
                moved = true;
            }
            for action in BY_THEMSELVES {
                let mut next = world.clone();
                if next.act(at, action) {
                    self.visit(&next, left);
                    moved = true;
                }
            }
        }
        if !moved {
            self.ends += 1;
            finish(&mut world.clone(), &mut Dice::new(self.ends as u64));
        }
    }
}

/// Goes through all orders of these steps, after `before` was done and has arrived.
fn all_orders(before: &[(usize, Action)], steps: [&[Action]; 2]) {
    let config = Config {
        bufs: 8,
        buf_size: 40,
        send_size: 40,
        max_adverts: 4,
        peer_bufs: 8,
        peer_buf_size: 40,
        peer_max_adverts: 4,
    };
    let mut world = World::new([config; 2], 0xffff_fffd);
    for (at, action) in before {
        assert!(world.act(*at, *action), "{action:?}");
        while world.deliver(1 - at) {}
    }
    let mut search = Search { seen: HashSet::new(), ends: 0 };
    search.visit(&world, steps);
    assert!(search.ends > 0);
}

/// A `SendSm` crosses the `SrcAvailCancel`: the cancel is done by it, and gets no answer.
#[test]
fn send_sm_crosses_source_cancel() {
    all_orders(&[], [&[OFFER, Action::CancelSources, SEND], &[PART, Action::Refuse]]);
    all_orders(&[], [&[OFFER, Action::CancelSources, Action::GiveUp, SEND], &[Action::Refuse, SEND]]);
}

/// A `RdmaRdCompl` crosses the `SrcAvailCancel`: all that was read counts, and a cancel of what is
/// all read is done by that.
#[test]
fn read_report_crosses_source_cancel() {
    all_orders(&[], [&[OFFER, Action::CancelSources], &[PART, PART, READ]]);
    all_orders(&[(0, PIPELINED)], [&[OFFER, OFFER, Action::CancelSources, SEND], &[PART, READ, READ]]);
}

/// A spill takes the place of the program's memory under a late Read, a `SendSm` and a `SinkAvail`.
#[test]
fn a_spill_meets_reads_send_sm_and_sink_avail() {
    all_orders(&[], [&[OFFER, Action::Spill, SEND], &[PART, Action::Refuse]]);
    all_orders(&[(0, PIPELINED)], [&[OFFER, Action::Spill, OFFER], &[ADVERTISE, READ, READ]]);
    all_orders(&[], [&[OFFER, Action::Spill, Action::CancelSources], &[PART, READ]]);
}

/// Octets are queued behind a spill that is read, refused, taken back, or met by a `SinkAvail`.
#[test]
fn octets_behind_a_spill_meet_reads_send_sm_and_sink_avail() {
    let queue = Action::Queue { len: 3 };
    all_orders(&[], [&[OFFER, Action::Spill, queue, queue], &[PART, READ]]);
    all_orders(&[], [&[OFFER, Action::Spill, queue], &[PART, Action::Refuse]]);
    all_orders(&[], [&[OFFER, Action::Spill, queue, Action::CancelSources, queue], &[PART, READ]]);
    all_orders(&[(0, PIPELINED)], [&[OFFER, Action::Spill, queue, OFFER], &[ADVERTISE, READ]]);
    all_orders(&[], [&[OFFER, Action::Spill, queue, Action::Close], &[READ]]);
}

/// A `RdmaRdCompl` crosses a `ModeChange`, which waits for it.
#[test]
fn read_report_crosses_mode_change() {
    all_orders(&[(0, PIPELINED)], [&[OFFER, COMBINED, SEND, COMBINED], &[PART, READ, ADVERTISE]]);
    all_orders(&[], [&[OFFER, PIPELINED, OFFER], &[READ, ADVERTISE]]);
}

/// A `SinkAvail` crosses the `ModeChange` to Combined: it is dropped, with Data before the change,
/// behind it, and a change back.
#[test]
fn sink_avail_crosses_mode_change() {
    all_orders(&[(0, PIPELINED)], [&[SEND, COMBINED, SEND, PIPELINED], &[ADVERTISE, ADVERTISE]]);
    all_orders(&[(0, PIPELINED)], [&[COMBINED, PIPELINED, COMBINED, SEND], &[ADVERTISE, ADVERTISE]]);
}

/// A `SinkAvail` crosses a `SrcAvail`, with and without Data before: the sink wins, or it is stale.
#[test]
fn sink_avail_crosses_source_avail() {
    all_orders(&[(0, PIPELINED)], [&[OFFER, OFFER, SEND], &[ADVERTISE, READ, ADVERTISE]]);
    all_orders(&[(0, PIPELINED)], [&[SEND, OFFER, WRITE], &[ADVERTISE, ADVERTISE, READ]]);
    all_orders(&[(0, PIPELINED)], [&[OFFER, Action::CancelSources, SEND], &[ADVERTISE, PART]]);
}

/// A Data crosses `SinkAvail`s: each discards one, at both ends the same.
#[test]
fn data_crosses_sink_avails() {
    all_orders(&[(0, PIPELINED)], [&[SEND, URGENT, SEND], &[ADVERTISE, ADVERTISE]]);
    all_orders(&[(0, PIPELINED)], [&[WRITE, URGENT, Action::Complete, WRITE], &[ADVERTISE, ADVERTISE]]);
}

/// A sink's cancel crosses Writes, their report, and Data: some need an answer, some get none.
#[test]
fn sink_cancel_needs_an_answer_or_none() {
    let steps: &[Action] = &[ADVERTISE, Action::CancelSinks, Action::Withdraw, ADVERTISE];
    all_orders(&[(0, PIPELINED)], [&[WRITE, SEND], steps]);
    all_orders(&[(0, PIPELINED)], [&[WRITE, Action::Complete, SEND], steps]);
    all_orders(&[(0, PIPELINED)], [&[SEND, SEND], &[ADVERTISE, ADVERTISE, Action::CancelSinks]]);
    all_orders(&[(0, PIPELINED)], [&[WRITE, COMBINED], &[ADVERTISE, ADVERTISE, Action::CancelSinks]]);
}

/// `DisConn`s cross each other, adverts, cancels and updates.
#[test]
fn disconn_crosses() {
    let close = Action::Close;
    all_orders(&[], [&[SEND, close], &[SEND, close]]);
    all_orders(&[], [&[OFFER, close], &[READ, close]]);
    all_orders(&[], [&[OFFER, Action::CancelSources, close], &[PART, close]]);
    all_orders(&[(0, PIPELINED)], [&[WRITE, close], &[ADVERTISE, Action::CancelSinks, close]]);
    all_orders(&[(0, PIPELINED)], [&[SEND, close], &[ADVERTISE, ADVERTISE, SEND]]);
}

/// Both change the modes of opposite halves at once, and the sink one to Combined.
#[test]
fn mode_changes_cross() {
    let buffered = Action::Mode { half: Half::Out, to: Mode::Buffered };
    let back = Action::Mode { half: Half::In, to: Mode::Combined };
    all_orders(&[], [&[PIPELINED, SEND, COMBINED], &[PIPELINED, SEND, COMBINED]]);
    all_orders(&[], [&[buffered, SEND, OFFER], &[back, PIPELINED, OFFER]]);
}

//! Counts of one QP since it was connected, in words that other processes may read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use rddp_stat::layout::slot;
use rddp_stat::{ConnectionKind, Counter, Identity, Phase, terminates_word};

use super::file::{StatFile, add, change_owner};
use crate::conn::socket::DeviceSocket;
use crate::counters::Counters;
use crate::mem::{Block, QpNum};
use crate::queues::options::Transport;
use crate::queues::state::QpState;

/// The counts of a QP. Who has its lock changes them.
pub(crate) struct Tally {
    block: Block,
    /// The file, and the number of the slot in it.
    slot: Option<(Arc<StatFile>, usize)>,
}

impl Tally {
    /// Returns counts for the program alone.
    pub(crate) fn alone() -> Self {
        Tally { block: Block::alone(), slot: None }
    }

    pub(super) fn shown(block: Block, file: Arc<StatFile>, number: usize) -> Self {
        Tally { block, slot: Some((file, number)) }
    }

    /// Shows whose counts these are.
    pub(crate) fn begin(&self, qp: QpNum, transport: Transport, active: bool, socket: &DeviceSocket) {
        if self.slot.is_none() {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
        let identity = Identity {
            kind: match transport {
                Transport::Iwarp | Transport::Acknowledged | Transport::Device => ConnectionKind::Qp,
                Transport::Tcp => ConnectionKind::Tcp,
                Transport::Record => ConnectionKind::Record,
                Transport::Udp | Transport::Unreliable => ConnectionKind::Udp,
            },
            active,
            number: qp.0,
            cookie: socket.cookie().unwrap_or(0),
            local: socket.local_addr().ok().and_then(|addr| addr.as_socket()),
            peer: socket.peer_addr().ok().and_then(|addr| addr.as_socket()),
            since,
        };
        change_owner(&self.block, || {
            let words = identity.words(Phase::ReadyToSend);
            self.block[slot::IDENTITY..].iter().zip(words).for_each(|(at, word)| {
                at.store(word, Ordering::Relaxed);
            });
        });
    }

    /// Shows the state of the QP, once it has been shown whose counts these are.
    pub(crate) fn set_state(&self, state: QpState) {
        let word = &self.block[slot::IDENTITY];
        let before = word.load(Ordering::Relaxed);
        if before != 0 {
            word.store(slot::with_phase(before, phase_of(state)), Ordering::Relaxed);
        }
    }

    /// Counts in a Terminate that was sent or received.
    #[cold]
    pub(crate) fn count_terminate(&self, code: u16, sent: bool) {
        self.add(if sent { Counter::TerminatesSent } else { Counter::TerminatesReceived }, 1);
        let code_word =
            if sent { terminates_word(Some(code), None) } else { terminates_word(None, Some(code)) };
        let word = &self.block[slot::TERMINATE];
        word.store(word.load(Ordering::Relaxed) | code_word, Ordering::Relaxed);
        if let Some((file, _)) = &self.slot {
            file.count_terminate(code, sent);
        }
    }

    /// Adds to a count.
    #[inline(always)]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        add(&self.block[slot::COUNTS + counter as usize], count);
    }

    /// Returns a count.
    #[inline(always)]
    pub(crate) fn of(&self, counter: Counter) -> u64 {
        self.block[slot::COUNTS + counter as usize].load(Ordering::Relaxed)
    }

    /// Returns the counts as the program knows them.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            fpdus_sent: self.of(Counter::FpdusSent),
            fpdus_received: self.of(Counter::FpdusReceived),
            octets_sent: self.of(Counter::OctetsSent),
            octets_received: self.of(Counter::OctetsReceived),
            send_calls: self.of(Counter::SendCalls),
            receive_calls: self.of(Counter::ReceiveCalls),
            octets_placed_directly: self.of(Counter::OctetsPlacedDirectly),
            octets_copied: self.of(Counter::OctetsCopied),
            octets_placed_by_kernel: self.of(Counter::OctetsPlacedByKernel),
            terminates_sent: self.of(Counter::TerminatesSent),
            terminates_received: self.of(Counter::TerminatesReceived),
            dropped: self.of(Counter::Dropped),
        }
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.counters().fmt(f)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some((file, number)) = &self.slot {
            file.give_back(*number, &self.block);
        }
    }
}

fn phase_of(state: QpState) -> Phase {
    match state {
        QpState::Idle => Phase::Idle,
        QpState::ReadyToSend | QpState::SendsFailed => Phase::ReadyToSend,
        QpState::Closing => Phase::Closing,
        QpState::Terminate => Phase::Terminate,
        QpState::Error => Phase::Error,
    }
}

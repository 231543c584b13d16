//! Completions of requests: done, acknowledged later, failed, flushed.

use std::time::Duration;

use rddp_verbs_layout::{ibv_wc, status, wc, wc_flags, wr};

use crate::octets::{octets_of, store};
use crate::queues::Entry;
use crate::quirk;
use crate::wire::{Request, State};
use crate::world::{Kind, World, world};

/// Octets from which on siw leaves a request in the program's pages.
const PAGE: usize = 4096;

impl World {
    pub(crate) fn enter(&mut self, pair: usize, mut entry: ibv_wc, frees: Option<u64>) {
        let Some(found) = self.pairs.get(&pair) else { return };
        entry.qp_num = found.number;
        self.complete(found.queue, Entry { wc: entry, frees: frees.map(|number| (pair, number)) });
    }

    /// Fills what is undefined where a request has failed with what misleads.
    pub(crate) fn undefined(&self, entry: &mut ibv_wc) {
        entry.opcode = if entry.opcode == wc::RECV { wc::SEND } else { wc::RECV_RDMA_WITH_IMM };
        entry.vendor_err = 77;
        (entry.byte_len, entry.wc_flags, entry.imm_data) = (0xdead, wc_flags::WITH_INV, 0xdead);
    }

    /// Completes a request that was carried out, at once or when the peer has acknowledged it.
    pub(crate) fn done(&mut self, pair: usize, request: Request) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        if !self.devices[found.device].has(quirk::SLOW) {
            return self.completed(pair, &request, status::SUCCESS);
        }
        let number = found.number;
        found.pending.push_back(request);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut world = world();
            let found = world.pairs.get_mut(&pair).filter(|pair| pair.number == number);
            if let Some(request) = found.and_then(|pair| pair.pending.pop_front()) {
                world.completed(pair, &request, status::SUCCESS);
            }
        });
    }

    pub(crate) fn completed(&mut self, pair: usize, request: &Request, number: u32) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        // Hardware frees places when a completion is polled, software when a request is done.
        let is_late = self.devices[found.device].kind == Kind::Adapter;
        if !is_late {
            found.freed = found.freed.max(request.sequence);
        }
        if !request.is_signaled && number == status::SUCCESS {
            return;
        }
        let mut entry = ibv_wc { wr_id: request.wr_id, status: number, ..ibv_wc::default() };
        if number == status::SUCCESS {
            entry.opcode = if request.opcode == wr::RDMA_READ { wc::RDMA_READ } else { wc::SEND };
        } else {
            self.undefined(&mut entry);
        }
        self.enter(pair, entry, is_late.then_some(request.sequence));
    }

    /// Notes the pages of which siw sends a request that is not signaled: TCP may take them later.
    pub(crate) fn leave_late(&mut self, pair: usize, request: &Request) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        let is_siw = self.devices[found.device].is_iwarp();
        if is_siw && !request.is_signaled && request.octets.len() >= PAGE {
            found.late.push((request.to, request.pieces.clone()));
        }
    }

    /// Sends what was left to TCP, as it is by now, when the other end looks for completions.
    pub(crate) fn send_late(&mut self, queue: usize) {
        let ends = self.pairs.values().filter(|pair| pair.queue == queue);
        for peer in ends.filter_map(|pair| pair.peer).collect::<Vec<_>>() {
            let late = self.pairs.get_mut(&peer).map(|peer| std::mem::take(&mut peer.late));
            for (to, pieces) in late.unwrap_or_default() {
                store(to, &octets_of(&pieces));
            }
        }
    }

    /// Notes a Read that has been asked for. siw completes what is behind it meanwhile.
    pub(crate) fn ask(&mut self, pair: usize, request: Request) {
        if let Some(found) = self.pairs.get_mut(&pair) {
            found.reads.push_back(request);
        }
    }

    /// Has the Responses of Reads come, when an end looks for completions and there are none.
    pub(crate) fn respond(&mut self, queue: usize) {
        let devices = &self.devices;
        let ends = self.pairs.iter().filter(|(_, pair)| pair.queue == queue && !devices[pair.device].is_cut);
        for pair in ends.map(|(pair, _)| *pair).collect::<Vec<_>>() {
            let asked = self.pairs.get_mut(&pair).map(|pair| std::mem::take(&mut pair.reads));
            for request in asked.unwrap_or_default() {
                request.read();
                self.done(pair, request);
            }
            self.pump(pair); // what waited behind a fence
        }
    }

    /// Ends a queue pair, whose requests are flushed.
    pub(crate) fn end(&mut self, pair: usize) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        let was = std::mem::replace(&mut found.state, State::Error);
        self.flush(pair);
        if was != State::Error {
            self.tell_of_last(pair);
        }
    }

    /// Ends a queue pair as its program wishes, at once or when the device comes to it.
    pub(crate) fn fail(&mut self, pair: usize) {
        let Some(found) = self.pairs.get(&pair) else { return };
        if !self.devices[found.device].has(quirk::SLOW) {
            return self.end(pair);
        }
        let number = found.number;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut world = world();
            if world.pairs.get(&pair).is_some_and(|pair| pair.number == number) {
                world.end(pair);
            }
        });
    }

    pub(crate) fn flush(&mut self, pair: usize) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        let mut sends = std::mem::take(&mut found.reads);
        sends.append(&mut found.pending);
        sends.append(&mut found.outgoing);
        let mut receives = std::mem::take(&mut found.receives);
        receives.extend(found.under_way.take());
        for request in sends {
            self.completed(pair, &request, status::WR_FLUSH_ERR);
        }
        for receive in receives {
            let wr_id = receive.wr_id;
            self.enter(pair, ibv_wc { wr_id, status: status::WR_FLUSH_ERR, ..ibv_wc::default() }, None);
        }
    }
}

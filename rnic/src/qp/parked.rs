//! Sends that wait for a receive ([`NoReceive::Wait`]).
//!
//! The segment that finds no receive is parked, what was read behind it is kept as a partial FPDU would be, and nothing more
//! is read: TCP's window holds the peer. It goes on when a receive is posted, in the thread that posts it. TCP's
//! end is noticed meanwhile if it is a reset; a FIN lies behind octets that the program has not wanted yet.

use rddp_mpa::{Negotiated, RtrSet};
use rddp_rdma::{AsyncEventKind, ConnectOptions};

use super::QpInner;
use super::core::Core;
use super::link::Link;
use super::rx::STAGING;
use crate::config::NoReceive;

/// What is read at a time where it may have to be kept: room for an FPDU of the largest size behind another.
const WAITING_STAGE: usize = STAGING / 2;

impl Core {
    pub(super) fn is_parked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.parked.is_some())
    }
}

impl QpInner {
    /// Whether a Send without a receive waits.
    pub(super) fn waits(&self) -> bool {
        self.no_receive == NoReceive::Wait
    }

    /// Octets that may be staged at a time.
    pub(super) fn stage_len(&self) -> usize {
        if self.waits() { WAITING_STAGE } else { STAGING }
    }

    /// Responses would wait behind a parked Send: there are none.
    pub(crate) fn without_reads(&self, negotiated: Negotiated) -> Negotiated {
        if self.waits() { Negotiated { ird: 0, ord: 0, ..negotiated } } else { negotiated }
    }

    /// What a startup is to ask for, so that there are none.
    pub(crate) fn options(&self, options: &ConnectOptions) -> ConnectOptions {
        if !self.waits() {
            return options.clone();
        }
        let rtr = RtrSet { read: false, ..options.rtr };
        ConnectOptions { ird: 0, ord: 0, rtr, ..options.clone() }
    }

    /// Keeps a ULPDU until there is a receive for it.
    pub(super) fn park(&self, core: &mut Core, ulpdu: &[u8]) {
        if let Some(link) = &mut core.link {
            self.device.partial.charge(ulpdu.len());
            link.parked = Some(ulpdu.to_vec());
        }
    }

    /// What waited is not wanted any more.
    pub(super) fn unpark_nothing(&self, link: &mut Link) {
        let len = link.parked.take().map_or(0, |ulpdu| ulpdu.len());
        self.device.partial.release(len);
    }

    /// Delivers what waits, and what has come behind it, if there is a receive. Whether the socket may be read.
    pub(super) fn unpark(&self, core: &mut Core) -> bool {
        let Some(link) = &mut core.link else { return true };
        if link.parked.is_none() {
            return true;
        }
        if core.rq.is_empty() {
            if link.socket.take_error().is_ok_and(|error| error.is_some()) {
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
            }
            return false;
        }
        let Some(ulpdu) = link.parked.take() else { return true };
        self.device.partial.release(ulpdu.len());
        if let Err((fault, offending)) = self.deliver(core, &ulpdu) {
            self.terminate(core, fault, offending.as_ref());
        }
        if core.is_parked() {
            return false;
        }
        self.handle_stashed(core);
        core.link.is_some() && !core.is_parked()
    }

    /// A receive has been posted: goes on, and has the socket read again.
    pub(super) fn resume(&self, core: &mut Core) {
        self.unpark(core);
        self.pump(core);
    }
}

//! The connection of SDP with its adverts, as the receiving lock gives it.

use rddp_sdp::machine::{Blocked, Machine};
use rddp_sdp::wire::Front;

use super::shared::Shared;
use super::zcopy::{Adverts, Zcopy};
use crate::state::Rx;
use crate::sys::{Guard, parts};

/// The connection, and its adverts while there are any.
pub(crate) struct Live<'a> {
    pub(crate) sdp: &'a mut Shared,
    pub(crate) adverts: Option<&'a mut Adverts>,
}

impl Live<'_> {
    #[inline]
    pub(crate) fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.sdp.core, self.adverts.as_deref_mut().map(|adverts| &mut adverts.tables))
    }

    /// Returns whether the adverts fit together, and are there if they should be.
    pub(crate) fn is_sound(&self) -> bool {
        match &self.adverts {
            None => self.sdp.has_adverts == 0,
            Some(adverts) => adverts.is_sound(),
        }
    }

    /// Returns the octets of the longest Data that may be sent now.
    #[inline]
    pub(crate) fn data_room(&mut self) -> Result<usize, Blocked> {
        if self.sdp.answer.is_due == 1 {
            return Err(Blocked::Control);
        }
        self.machine().data_room()
    }

    /// Returns whether octets wait for the peer: for credits, or for the end of own adverts.
    #[inline]
    pub(crate) fn waits_for_peer(&mut self) -> bool {
        self.sdp.answer.is_due == 0 && !matches!(self.machine().data_room(), Ok(_) | Err(Blocked::Closed))
    }

    /// Returns whether what is owed at this end's close waits for credits: `DisConn`, or octets in
    /// front of it.
    pub(super) fn end_waits_for_credits(&mut self) -> bool {
        let octets = self.machine().returned().is_some() && !self.sdp.core.has_credits_for_data();
        octets || self.machine().control_is_blocked()
    }

    /// Returns whether a send waits for the peer, too: its octets have no other place.
    #[inline]
    pub(super) fn blocks_sends(&mut self) -> bool {
        let has_place = self.sdp.behind.queues == 1 && self.sdp.behind.is_full == 0;
        !has_place && self.waits_for_peer() && !self.joins()
    }

    /// Returns whether a send puts its octets behind others, or where they wait for credits.
    #[inline]
    pub(super) fn queues(&mut self) -> bool {
        self.sdp.behind.queues == 1 || self.joins()
    }

    #[inline]
    fn joins(&mut self) -> bool {
        self.sdp.behind.joins == 1 && self.data_room() == Err(Blocked::Credits)
    }

    /// Returns whether a wait for room is to go on, though a send would find a little.
    #[inline]
    pub(super) fn is_short(&mut self) -> bool {
        self.sdp.is_short() && self.sdp.behind.queues | self.sdp.behind.joins == 0 && self.data_room().is_ok()
    }

    /// Returns whether Reads of the peer are not answered, or octets of adverts came back.
    pub(super) fn owes_octets(&mut self) -> bool {
        let reads = self.adverts.as_ref().is_some_and(|adverts| adverts.requests.count > 0);
        reads || self.machine().returned().is_some()
    }

    /// Returns the headers of a Data, which counts as sent.
    #[inline]
    pub(super) fn data(&mut self, payload_len: usize) -> Result<Front, Blocked> {
        let urgent_left = self.sdp.urgent.left;
        let left = (urgent_left as usize).saturating_sub(payload_len);
        let is_urgent = urgent_left > 0 && left == 0;
        if (1..=NEAR).contains(&urgent_left) && !is_urgent {
            self.machine().announce_urgent();
        }
        let front = self.machine().data(payload_len, is_urgent)?;
        self.sdp.urgent.left = left as u32;
        Ok(front)
    }

    /// Passes the next control message that is due, if credits allow it, to `send`. It counts as
    /// sent. Returns whether there was one.
    #[inline]
    pub(super) fn next_control(&mut self, send: impl FnOnce(&[u8])) -> bool {
        if std::mem::take(&mut self.sdp.answer.is_due) == 1 {
            send(&self.sdp.answer.octets);
            return true;
        }
        let front = self.machine().next_control();
        front.inspect(|front| send(front)).is_some()
    }

    /// Returns whether a message without octets of the program is due, whatever the credits.
    #[inline]
    pub(super) fn control_due(&mut self) -> bool {
        self.sdp.answer.is_due == 1 || self.machine().control_due()
    }
}

/// Returns the connection under this lock. Adverts that are not sound were found out when the lock
/// was taken.
#[inline]
pub(crate) fn live<'a>(rx: &'a mut Guard<'_, Rx>) -> Live<'a> {
    if rx.sdp.has_adverts == 0 {
        return Live { sdp: &mut rx.sdp, adverts: None };
    }
    let (rx, _, table) = parts(rx);
    let zcopy = table.into_value::<Zcopy>(rx.tables);
    Live { sdp: &mut rx.sdp, adverts: zcopy.map(|zcopy| &mut zcopy.adverts) }
}

/// Octets of the urgent one at which messages announce it.
const NEAR: u32 = 65_535;

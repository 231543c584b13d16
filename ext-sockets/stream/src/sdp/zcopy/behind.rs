//! Octets of sends that wait in memory of the stream: behind a spill, since none may overtake those
//! of an advert, or for credits, and then short messages are joined to long ones. TCP would have
//! them in the buffers of both ends.

use rddp_sdp::machine::Machine;

use super::ZeroCopy;
use super::spill::copy_in;
use super::state::{Backing, Zcopy, reserve_zcopy, zcopy};
use crate::Errno;
use crate::base::Base;
use crate::rooms::{QUEUED, Room};
use crate::sink::Source;
use crate::state::Rx;
use crate::sys::{ChainError, Guard, is_confined};

impl ZeroCopy<'_, '_> {
    /// Copies octets of a send behind those that stand in memory of the stream, or that have no
    /// credits, as many as have room there. Returns their number.
    ///
    /// # Errors
    /// `EFAULT`: the first one is not mapped.
    #[cold]
    pub(crate) fn queue_behind(
        &self,
        rx: &mut Guard<'_, Rx>,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let all = source.left();
        rx.set_changing(true);
        reserve_zcopy(rx);
        let end = loop {
            match queue_some(rx, source) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        rx.sdp.behind.cannot_join |= u32::from(end.is_ok() && source.left() == all);
        self.settle_adverts(rx);
        rx.set_changing(false);
        match (all - source.left(), end) {
            (0, Err(Some(error))) => Err(error),
            (_, Err(None)) => Err(self.damaged()),
            (done, _) => Ok(done),
        }
    }
}

/// Notes whether a send without credits has a place. It has none behind as many octets as TCP
/// would take: those of a bulk transfer would be copied for nothing.
#[inline]
pub(crate) fn note_joining(base: &Base<'_>, rx: &mut Guard<'_, Rx>, has_many_credits: bool) {
    if has_many_credits {
        (rx.sdp.behind.joins, rx.sdp.behind.cannot_join) = (0, 0);
    } else {
        let may_join = base.state.asked.format.joins()
            && rx.sdp.behind.cannot_join == 0
            && rx.sdp.in_flight() < QUEUED
            && !is_confined();
        rx.sdp.behind.joins = may_join.into();
    }
}

/// Copies some octets behind. `Err(None)`: the numbers are damaged.
fn queue_some(rx: &mut Guard<'_, Rx>, source: &mut Source<'_>) -> Result<usize, Option<Errno>> {
    let Some((state, mut chains, Zcopy { adverts, sources, .. })) = zcopy(rx) else { return Ok(0) };
    let part = source.first(state.rooms.free(Room::Queued));
    let (mut core, mut tables) = (state.sdp.core, adverts.tables);
    let Ok(id) = Machine::new(&mut core, Some(&mut tables)).queue_behind(1) else { return Ok(0) };
    if part.left() == 0 {
        return Ok(0);
    }
    let backing = &mut sources[id.place()];
    let count = match copy_in(&mut chains, &mut backing.chain, &mut { part }) {
        Ok(count) => count?,
        Err(ChainError::NoRoom) => return Ok(0),
        Err(ChainError::Damaged) => return Err(None),
    };
    let queued = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables)).queue_behind(count as u32);
    if queued != Ok(id) || !state.rooms.charge(Room::Queued, count) {
        return Err(None);
    }
    (backing.kind, backing.len) = (Backing::CHAIN, backing.len + count as u32);
    state.sdp.has_adverts = 1;
    source.skip(count);
    Ok(count)
}

/// Returns whether sends are to put their octets behind those that wait: some stand in memory of
/// the stream, and none in a program's.
pub(super) fn may_queue(sources: &[Backing]) -> bool {
    let any = |kind| sources.iter().any(|backing| backing.kind == kind);
    any(Backing::CHAIN) && !any(Backing::CALL)
}

//! Octets of sends behind a spill: they go into memory of the stream, too, since none may overtake
//! those of an advert. TCP would have them in the buffers of both ends.

use rddp_sdp::machine::Machine;

use super::spill::copy_in;
use super::state::{Backing, Zcopy, zcopy};
use crate::rooms::{Room, Rooms, SPILL};
use crate::sink::Source;
use crate::state::Rx;
use crate::sys::{ChainError, Guard};
use crate::{Errno, Stream};

impl Stream<'_> {
    /// Copies octets of a send behind adverts that stand in memory of the stream, as many as have
    /// room there. Returns their number.
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
        rx.sdp.changing = 1;
        let end = loop {
            match queue_some(rx, source) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        rx.sdp.changing = 0;
        self.note_spilled(rx);
        match (all - source.left(), end) {
            (0, Err(Some(error))) => Err(error),
            (_, Err(None)) => Err(self.owner_died()),
            (done, _) => Ok(done),
        }
    }
}

/// Copies some octets behind. `Err(None)`: the numbers are damaged.
fn queue_some(rx: &mut Guard<'_, Rx>, source: &mut Source<'_>) -> Result<usize, Option<Errno>> {
    let Some((state, mut chains, Zcopy { adverts, sources, .. })) = zcopy(rx) else { return Ok(0) };
    let part = source.first(state.rooms.free(Room::Spill));
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
    if queued != Ok(id) || !state.rooms.charge(Room::Spill, count) {
        return Err(None);
    }
    (backing.kind, backing.len) = (Backing::CHAIN, backing.len + count as u32);
    state.sdp.has_adverts = 1;
    source.skip(count);
    Ok(count)
}

/// Returns whether sends are to put their octets behind a spill: adverts stand in memory of the
/// stream, none in a program's, and a third of the room is free.
pub(super) fn may_queue(sources: &[Backing], rooms: &Rooms) -> bool {
    let any = |kind| sources.iter().any(|backing| backing.kind == kind);
    any(Backing::CHAIN) && !any(Backing::CALL) && rooms.free(Room::Spill) >= SPILL / 3
}

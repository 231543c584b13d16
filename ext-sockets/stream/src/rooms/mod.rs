//! Rooms: how many octets a stream of the Sockets Direct Protocol may hold outside the kernel, for
//! each reason apart, and the order in which the program gets them.
//!
//! Octets are charged to a room before they are asked for or taken out of the kernel, and released
//! when the program has them. All of them stand in one queue (a [`Chain`](super::sys::Chain)), in
//! the order of the wire; [`Runs`] says which octets of it are charged to which room. Both are
//! plain integers under the lock of the stream: [`Rooms`] lies in the state, [`Runs`] in the
//! stream's block of tables.

mod runs;

use crate::fields::{Field, fields};

pub(crate) use runs::{RUNS, Runs};

/// Reasons for which a stream holds octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Payload of Data, and inline payload: bounded by Bufs x size, which the peer's credits bound
    /// as well.
    Data,
    /// Parts of the peer's adverts that are Read into memory of the stream.
    Reads,
    /// The rest of a sink in memory of the program whose call has returned. Charged for all that
    /// is outstanding of such sinks.
    Sinks,
    /// Adverts of this end that stand in memory of the stream.
    Spill,
    /// Octets of sends that wait in memory of the stream, behind such adverts or for credits.
    Queued,
}

impl Room {
    const ALL: [Self; 5] = [Self::Data, Self::Reads, Self::Sinks, Self::Spill, Self::Queued];
}

/// Most octets of Reads into memory of the stream, together.
pub(crate) const READS: usize = 256 << 10;
/// Most octets outstanding of sinks in memory of the program, together.
pub(crate) const SINKS: usize = 1 << 20;
/// Most octets of spilled adverts, together.
pub(crate) const SPILL: usize = 2 << 20;
/// Most octets of one spilled advert.
pub(crate) const ONE_SPILL: usize = 1 << 20;
/// Most octets of sends that wait: as many as TCP takes by default, 4 MiB at the sender (the
/// largest size of `tcp_wmem`), and some at a receiver that has read nothing.
pub(crate) const QUEUED: usize = 17 << 18;

/// Octets that are charged to each room. All zeros: no room for Data, as before
/// [`begin`](Self::begin).
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Rooms {
    charged: [u32; 5],
    data: u32,
}

impl Rooms {
    pub(crate) const FIELDS: &[Field] = fields!(Rooms: charged, data);

    /// Sets the bound of the room for Data: Bufs x size of this end.
    pub(crate) fn begin(&mut self, data: usize) {
        self.data = u32::try_from(data).unwrap_or(u32::MAX);
    }

    /// Returns how many more octets may be charged to a room at once.
    pub(crate) fn free(&self, room: Room) -> usize {
        let (bound, one) = match room {
            Room::Data => (self.data as usize, usize::MAX),
            Room::Reads => (READS, usize::MAX),
            Room::Sinks => (SINKS, usize::MAX),
            Room::Spill => (SPILL, ONE_SPILL),
            Room::Queued => (QUEUED, usize::MAX),
        };
        bound.saturating_sub(self.charged(room)).min(one)
    }

    /// Returns how many octets are charged to a room.
    pub(crate) fn charged(&self, room: Room) -> usize {
        self.charged[room as usize] as usize
    }

    /// Charges octets to a room. `false`, and nothing is charged: it has no room for all of them.
    #[must_use]
    pub(crate) fn charge(&mut self, room: Room, octets: usize) -> bool {
        let is_free = octets <= self.free(room);
        if is_free {
            self.charged[room as usize] += octets as u32;
        }
        is_free
    }

    /// Releases octets of a room, which may be charged again.
    pub(crate) fn release(&mut self, room: Room, octets: usize) {
        let charged = &mut self.charged[room as usize];
        *charged = charged.saturating_sub(u32::try_from(octets).unwrap_or(u32::MAX));
    }

    /// Returns whether no room is charged with more than its bound: another process may have
    /// written anything.
    pub(crate) fn is_sound(&self) -> bool {
        let bounds = [self.data as usize, READS, SINKS, SPILL, QUEUED];
        Room::ALL.iter().zip(bounds).all(|(room, bound)| self.charged(*room) <= bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_takes_its_bound_and_no_octet_more() {
        let mut rooms = Rooms::default();
        assert!(!rooms.charge(Room::Data, 1), "before the beginning");
        rooms.begin(4 << 20);
        let bounds =
            [(Room::Data, 4 << 20), (Room::Reads, READS), (Room::Sinks, SINKS), (Room::Queued, QUEUED)];
        for (room, bound) in bounds {
            assert!(!rooms.charge(room, bound + 1) && rooms.charge(room, bound - 1));
            assert_eq!((rooms.free(room), rooms.charged(room)), (1, bound - 1));
            assert!(!rooms.charge(room, 2) && rooms.charge(room, 1) && !rooms.charge(room, 1));
            rooms.release(room, 10);
            assert_eq!(rooms.free(room), 10);
        }
        assert!(!rooms.charge(Room::Spill, ONE_SPILL + 1), "an advert alone");
        assert!(rooms.charge(Room::Spill, ONE_SPILL) && rooms.charge(Room::Spill, ONE_SPILL));
        assert_eq!(rooms.free(Room::Spill), 0);
        assert!(rooms.is_sound());
    }

    #[test]
    fn numbers_that_another_process_wrote_make_no_room() {
        let mut rooms = Rooms::default();
        rooms.begin(1000);
        for room in Room::ALL {
            rooms.charged = [0; 5];
            rooms.charged[room as usize] = u32::MAX;
            assert!(!rooms.is_sound() && rooms.free(room) == 0 && !rooms.charge(room, 1));
            rooms.release(room, usize::MAX);
            assert!(rooms.is_sound());
        }
    }
}

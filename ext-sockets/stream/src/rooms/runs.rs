//! The octets of the queue as runs: to which room they are charged.

use std::mem::offset_of;

use super::{Room, Rooms};
use crate::fields::{Structure, fields};

/// Number of runs that a queue may have. Each but the first began behind octets of another room.
pub(crate) const RUNS: usize = 2048;

/// The runs of octets in the queue, front to back. All zeros: none.
#[repr(C)]
pub(crate) struct Runs {
    first: u32,
    count: u32,
    list: [Run; RUNS],
}

/// Octets of the queue that are charged to one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Run {
    octets: u32,
    /// The number of the room.
    room: u32,
}

impl Runs {
    /// The structures, by their offsets.
    pub(crate) const STRUCTURES: [Structure; 2] =
        [(0, fields!(Runs: first, count, list)), (offset_of!(Self, list), fields!(Run: octets, room))];

    /// Notes that octets, which are charged to `room`, have come to the end of the queue. `false`,
    /// and nothing is noted: there are too many runs until the program has read some.
    #[must_use]
    pub(crate) fn queue(&mut self, room: Room, octets: usize) -> bool {
        let Ok(octets) = u32::try_from(octets) else { return false };
        let room = room as u32;
        if let Some(last) = self.last()
            && last.room == room
            && let Some(sum) = last.octets.checked_add(octets)
        {
            last.octets = sum;
            return true;
        }
        if self.count as usize >= RUNS {
            return false;
        }
        let end = self.index(self.count);
        self.list[end] = Run { octets, room };
        self.count += 1;
        true
    }

    /// Returns whether [`queue`](Self::queue) would take octets of any room.
    pub(crate) fn has_place(&self) -> bool {
        (self.count as usize) < RUNS
    }

    /// Releases the room of octets that have left the front of the queue. `None`: there are not so
    /// many octets; the numbers are damaged.
    #[must_use]
    pub(crate) fn take(&mut self, rooms: &mut Rooms, octets: usize) -> Option<()> {
        let mut left = octets;
        while self.count > 0 && self.count as usize <= RUNS {
            let at = self.index(0);
            let run = &mut self.list[at];
            let now = left.min(run.octets as usize);
            rooms.release(*Room::ALL.get(run.room as usize)?, now);
            left -= now;
            run.octets -= now as u32;
            if run.octets > 0 {
                break;
            }
            self.first = self.index(1) as u32;
            self.count -= 1;
        }
        (left == 0).then_some(())
    }

    fn last(&mut self) -> Option<&mut Run> {
        let before = self.count.checked_sub(1)?;
        let at = self.index(before);
        self.list.get_mut(at)
    }

    /// Returns where the run lies that has so many in front of it.
    fn index(&self, before: u32) -> usize {
        (self.first as usize).wrapping_add(before as usize) % RUNS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn none() -> Box<Runs> {
        Box::new(Runs { first: 0, count: 0, list: [Run { octets: 0, room: 0 }; RUNS] })
    }

    fn rooms() -> Rooms {
        let mut rooms = Rooms::default();
        rooms.begin(1 << 30);
        rooms
    }

    #[test]
    fn octets_of_one_room_are_one_run() {
        let (mut runs, mut rooms) = (none(), rooms());
        assert!(rooms.charge(Room::Data, 100) && rooms.charge(Room::Reads, 50));
        assert!(runs.queue(Room::Data, 40) && runs.queue(Room::Data, 10));
        assert!(runs.queue(Room::Reads, 20) && runs.queue(Room::Reads, 30));
        assert!(runs.queue(Room::Data, 50));
        assert_eq!((runs.count, runs.take(&mut rooms, 50)), (3, Some(())));
        assert_eq!((runs.take(&mut rooms, 60), rooms.charged(Room::Reads)), (Some(()), 0));
        assert_eq!((runs.take(&mut rooms, 40), rooms.charged(Room::Data)), (Some(()), 0));
        assert_eq!(runs.take(&mut rooms, 1), None, "more than there was");
    }

    #[test]
    fn a_queue_of_too_many_runs_takes_no_more_until_some_are_read() {
        let (mut runs, mut rooms) = (none(), rooms());
        for at in 0..RUNS {
            assert!(runs.has_place() && runs.queue([Room::Data, Room::Reads][at % 2], 1));
        }
        assert!(!runs.has_place() && !runs.queue(Room::Data, 1) && runs.queue(Room::Reads, 1));
        assert_eq!(runs.take(&mut rooms, 3), Some(()));
        assert!(runs.queue(Room::Data, 1) && runs.queue(Room::Data, 1));
        assert_eq!(runs.count as usize, RUNS - 2);
    }

    #[test]
    fn what_is_taken_is_released_in_the_order_in_which_it_came() {
        for seed in 1..50_u64 {
            let mut random = seed;
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let (mut runs, mut rooms, mut model) = (none(), rooms(), VecDeque::new());
            for _ in 0..2000 {
                let octets = next(60) as usize;
                if next(2) == 0 {
                    let room = Room::ALL[next(4) as usize];
                    if rooms.charge(room, octets) && runs.queue(room, octets) {
                        model.extend((0..octets).map(|_| room));
                    }
                } else {
                    let octets = octets.min(model.len());
                    model.drain(..octets);
                    assert_eq!(runs.take(&mut rooms, octets), Some(()));
                }
                for room in Room::ALL {
                    let queued = model.iter().filter(|of| **of == room).count();
                    assert_eq!(rooms.charged(room), queued);
                }
            }
        }
    }

    #[test]
    fn damaged_numbers_end_in_an_answer() {
        for (first, count) in [(u32::MAX, 1), (0, u32::MAX), (u32::MAX, u32::MAX), (7, RUNS as u32)] {
            for run in [
                Run { octets: u32::MAX, room: 0 },
                Run { octets: 0, room: u32::MAX },
                Run { octets: 1, room: 4 },
            ] {
                let (mut runs, mut rooms) = (none(), rooms());
                (runs.first, runs.count, runs.list) = (first, count, [run; RUNS]);
                let _ = (runs.queue(Room::Data, 9), runs.queue(Room::Reads, usize::MAX));
                let _ = (runs.take(&mut rooms, usize::MAX), runs.take(&mut rooms, 1), runs.has_place());
                assert!(rooms.is_sound());
            }
        }
    }
}

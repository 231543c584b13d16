//! Commands for a disk, of an I/O queue (NVM, "I/O Commands").

use super::capsule::{Place, Sqe};
use super::octets::{le32, le64};
use super::status::Status;
use super::{BLOCK_SHIFT, MAX_TRANSFER};
use crate::export::{Command, Export};

/// The number of the one namespace of each subsystem.
pub const NSID: u32 = 1;

/// A command for all namespaces.
pub(super) const ALL: u32 = u32::MAX;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// Force Unit Access, and Deallocate of Write Zeroes, in Command Dword 12.
const FUA: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;

/// Deallocate of Dataset Management, in Command Dword 11.
const TRIM: u32 = 1 << 2;

/// Octets of a range of blocks.
const RANGE_LEN: usize = 16;

/// Octets of a part in which a long range is trimmed.
const PART: u64 = 1 << 31;

/// Parts of one command that are trimmed. It is a wish, so that the rest may be left.
const MOST_PARTS: usize = 4096;

/// A command that has been found to be within its disk and allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The disk has to do something. A read's and a write's octets have the command's place.
    Disk(Command),
    /// The ranges are needed, which are so many octets: see [`trims`].
    Ranges(usize),
    /// There is nothing to do.
    Nothing,
}

/// Checks a command against its disk.
pub(super) fn check(sqe: &Sqe, place: &Place, export: &Export) -> Result<Work, Status> {
    let may_write = || if export.writable { Ok(()) } else { Err(Status::WRITE_PROTECTED) };
    let [_, _, cdw12, ..] = sqe.cdw;
    let fua = cdw12 & FUA != 0;
    match sqe.opcode {
        FLUSH if sqe.nsid == ALL || sqe.nsid == NSID => Ok(Work::Disk(Command::Flush)),
        FLUSH | WRITE | READ | WRITE_ZEROES | DATASET_MANAGEMENT if sqe.nsid != NSID => {
            Err(Status::INVALID_NAMESPACE)
        }
        READ => {
            let (offset, len) = blocks(sqe, export)?;
            has_data(place, len)?;
            Ok(Work::Disk(Command::Read { offset, len }))
        }
        WRITE => {
            may_write()?;
            let (offset, len) = blocks(sqe, export)?;
            has_data(place, len)?;
            Ok(Work::Disk(Command::Write { offset, len, fua }))
        }
        WRITE_ZEROES => {
            may_write()?;
            let (offset, len) = blocks(sqe, export)?;
            let may_trim = cdw12 & DEALLOCATE != 0;
            Ok(Work::Disk(Command::Zero { offset, len, fua, may_trim }))
        }
        DATASET_MANAGEMENT if sqe.cdw[1] & TRIM == 0 => Ok(Work::Nothing),
        DATASET_MANAGEMENT => {
            may_write()?;
            let len = RANGE_LEN * (1 + (sqe.cdw[0] & 0xff) as usize);
            // Linux sends room for all ranges that there could be.
            if (place.len() as usize) < len { Err(Status::DATA_LENGTH) } else { Ok(Work::Ranges(len)) }
        }
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// Returns the place of a command's blocks on its disk, in octets.
fn blocks(sqe: &Sqe, export: &Export) -> Result<(u64, u32), Status> {
    let [cdw10, cdw11, cdw12, ..] = sqe.cdw;
    let first = u64::from(cdw11) << 32 | u64::from(cdw10);
    let count = (cdw12 & 0xffff) + 1;
    if !has(export, first, count.into()) {
        return Err(Status::LBA_RANGE);
    }
    Ok((first << BLOCK_SHIFT, count << BLOCK_SHIFT))
}

/// Returns whether a disk has those blocks.
fn has(export: &Export, first: u64, count: u64) -> bool {
    first.checked_add(count).is_some_and(|end| end <= export.size >> BLOCK_SHIFT)
}

/// Checks that a command has as many octets as its blocks, and not too many.
fn has_data(place: &Place, len: u32) -> Result<(), Status> {
    match place.len() {
        _ if len > MAX_TRANSFER => Err(Status::INVALID_FIELD),
        said if said != len => Err(Status::DATA_LENGTH),
        _ => Ok(()),
    }
}

/// Returns what has to be trimmed for a Dataset Management with these ranges (NVM, "Dataset
/// Management command").
pub(super) fn trims(ranges: &[u8], export: &Export) -> Result<Vec<Command>, Status> {
    let ranges = || ranges.chunks_exact(RANGE_LEN).map(|range| (le64(range, 8), u64::from(le32(range, 4))));
    if !ranges().all(|(first, count)| has(export, first, count)) {
        return Err(Status::LBA_RANGE);
    }
    let parts = ranges().flat_map(|(first, count)| {
        let (from, to) = (first << BLOCK_SHIFT, (first + count) << BLOCK_SHIFT);
        (from..to).step_by(PART as usize).map(move |offset| {
            let len = (to - offset).min(PART) as u32;
            Command::Trim { offset, len, fua: false }
        })
    });
    Ok(parts.take(MOST_PARTS).collect())
}

/// Makes the command for what a disk is to do: the host's end. Offsets and lengths are multiples
/// of a block, of `shift` octets' logarithm; `None` of what has no such command.
#[must_use]
pub fn command(cid: u16, command: &Command, shift: u8, place: Place) -> Option<Sqe> {
    let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
    let (opcode, offset, len, flags) = match *command {
        Command::Read { offset, len } => (READ, offset, len, 0),
        Command::Write { offset, len, fua } => (WRITE, offset, len, flag(FUA, fua)),
        Command::Zero { offset, len, fua, may_trim } => {
            (WRITE_ZEROES, offset, len, flag(FUA, fua) | flag(DEALLOCATE, may_trim))
        }
        Command::Flush => return Some(Sqe::new(FLUSH, cid, NSID, place, [0; 6])),
        Command::Trim { .. } | Command::Status { .. } => return None,
    };
    let (first, count) = (offset >> shift, (len >> shift).checked_sub(1)?);
    let cdw12 = flags | u32::from(u16::try_from(count).ok()?);
    Some(Sqe::new(opcode, cid, NSID, place, [first as u32, (first >> 32) as u32, cdw12, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk(writable: bool) -> Export {
        Export { name: "disk".into(), size: (100 << 9) + 17, writable }
    }

    fn keyed(len: u32) -> Place {
        Place::Keyed { address: 0, len, key: 1, invalidate: true }
    }

    fn asked(command: &Command, len: u32, writable: bool) -> Result<Work, Status> {
        check(&super::command(1, command, 9, keyed(len)).unwrap(), &keyed(len), &disk(writable))
    }

    #[test]
    fn both_ends_mean_the_same_by_a_command() {
        let commands = [
            Command::Read { offset: 99 << 9, len: 512 },
            Command::Write { offset: 0, len: 100 << 9, fua: true },
            Command::Write { offset: 512, len: 1024, fua: false },
            Command::Zero { offset: 512, len: 1024, fua: true, may_trim: false },
            Command::Zero { offset: 512, len: 1024, fua: false, may_trim: true },
            Command::Flush,
        ];
        for command in commands {
            let len = match command {
                Command::Read { len, .. } | Command::Write { len, .. } => len,
                _ => 0,
            };
            assert_eq!(asked(&command, len, true), Ok(Work::Disk(command)));
            let reads = matches!(command, Command::Read { .. } | Command::Flush);
            let refused = Err(Status::WRITE_PROTECTED);
            assert_eq!(asked(&command, len, false), if reads { Ok(Work::Disk(command)) } else { refused });
        }
        let trim = Command::Trim { offset: 0, len: 512, fua: false };
        assert_eq!(super::command(1, &trim, 9, Place::NONE), None);
        assert_eq!(super::command(1, &Command::Read { offset: 0, len: 0 }, 9, Place::NONE), None);
        assert_eq!(super::command(1, &Command::Read { offset: 0, len: 1 << 26 }, 9, Place::NONE), None);
    }

    /// NVM, "Read command": the numbers as they are there.
    #[test]
    fn a_read_is_written_as_the_specification_has_it() {
        let read = Command::Read { offset: 0x1_0203_0405 << 9, len: 8 << 9 };
        let sqe = command(7, &read, 9, keyed(8 << 9)).unwrap();
        assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw), (2, 1, [0x0203_0405, 1, 7, 0, 0, 0]));
        let write = Command::Write { offset: 0, len: 512, fua: true };
        assert_eq!(command(7, &write, 9, keyed(512)).unwrap().cdw[2], 0x4000_0000);
    }

    #[test]
    fn commands_that_cannot_be_are_refused() {
        let read = |offset, len, said| asked(&Command::Read { offset, len }, said, true);
        // The octets behind the last whole block are not there.
        assert_eq!(read(100 << 9, 512, 512), Err(Status::LBA_RANGE));
        assert_eq!(read(99 << 9, 1024, 1024), Err(Status::LBA_RANGE));
        assert_eq!(read(u64::MAX << 9, 1024, 1024), Err(Status::LBA_RANGE));
        assert_eq!(read(0, 1024, 512), Err(Status::DATA_LENGTH));
        assert_eq!(read(0, 512, 1024), Err(Status::DATA_LENGTH));
        let sqe = |opcode, nsid, cdw| Sqe::new(opcode, 1, nsid, Place::NONE, cdw);
        for opcode in 3..=255 {
            let known = [WRITE_ZEROES, DATASET_MANAGEMENT].contains(&opcode);
            let other = check(&sqe(opcode, NSID, [0; 6]), &Place::NONE, &disk(true));
            assert_eq!(other == Err(Status::INVALID_OPCODE), !known, "{opcode}");
        }
        for (opcode, nsid) in [(FLUSH, 2), (READ, 0), (READ, ALL), (DATASET_MANAGEMENT, 2)] {
            let other = check(&sqe(opcode, nsid, [0; 6]), &Place::NONE, &disk(true));
            assert_eq!(other, Err(Status::INVALID_NAMESPACE));
        }
        let all = check(&sqe(FLUSH, ALL, [0; 6]), &Place::NONE, &disk(false));
        assert_eq!(all, Ok(Work::Disk(Command::Flush)));
        let large = Export { size: 1 << 40, ..disk(true) };
        let long = command(1, &Command::Read { offset: 0, len: 2 << 20 }, 9, keyed(2 << 20)).unwrap();
        assert_eq!(check(&long, &keyed(2 << 20), &large), Err(Status::INVALID_FIELD));
    }

    fn range(first: u64, count: u32) -> Vec<u8> {
        [&[0; 4][..], &count.to_le_bytes(), &first.to_le_bytes()].concat()
    }

    #[test]
    fn ranges_are_trimmed_in_parts_and_only_where_there_are_blocks() {
        let manage = |ranges: u32, cdw11, len, writable| {
            let sqe = Sqe::new(DATASET_MANAGEMENT, 1, NSID, keyed(len), [ranges - 1, cdw11, 0, 0, 0, 0]);
            check(&sqe, &keyed(len), &disk(writable))
        };
        assert_eq!(manage(2, TRIM, 4096, true), Ok(Work::Ranges(32)));
        assert_eq!(manage(2, TRIM, 31, true), Err(Status::DATA_LENGTH));
        assert_eq!(manage(2, TRIM, 32, false), Err(Status::WRITE_PROTECTED));
        assert_eq!(manage(2, 1, 0, false), Ok(Work::Nothing));
        let trim = |offset, len| Command::Trim { offset, len, fua: false };
        let two = [range(1, 2), range(50, 0), range(99, 1)].concat();
        assert_eq!(trims(&two, &disk(true)), Ok(vec![trim(512, 1024), trim(99 << 9, 512)]));
        for (first, count) in [(100, 1), (0, 101), (u64::MAX, 1), (u64::MAX, u32::MAX)] {
            assert_eq!(trims(&range(first, count), &disk(true)), Err(Status::LBA_RANGE));
        }
        let large = Export { size: 1 << 50, ..disk(true) };
        let parts = trims(&range(1, (5 << 21) + 1), &large).unwrap();
        assert_eq!((parts.len(), parts[2]), (3, trim((4 << 30) + 512, (1 << 30) + 512)));
        assert_eq!(trims(&range(0, u32::MAX).repeat(256), &large).unwrap().len(), MOST_PARTS);
    }

    proptest! {
        /// Nothing is done outside of the disk, or against its rights, whatever a host says.
        #[test]
        fn no_command_leaves_its_disk(
            octets: [u8; 64], opcode in 0u8..12, size: u64, near: bool, writable: bool, len: u32,
        ) {
            let mut sqe = Sqe::parse(&octets);
            (sqe.opcode, sqe.nsid) = (opcode, NSID);
            if near {
                // Blocks around the end of the disk.
                let first = (size >> BLOCK_SHIFT).wrapping_sub((sqe.cdw[2] & 0xff).into());
                (sqe.cdw[0], sqe.cdw[1]) = (first as u32, (first >> 32) as u32);
            }
            let export = Export { name: String::new(), size, writable };
            let place = keyed(if near { ((sqe.cdw[2] & 0xffff) + 1) << 9 } else { len });
            match check(&sqe, &place, &export) {
                Ok(Work::Disk(Command::Read { offset, len } | Command::Write { offset, len, .. })) => {
                    prop_assert!(export.has(offset, len) && len <= MAX_TRANSFER && len == place.len());
                    prop_assert!(writable || opcode == READ);
                }
                Ok(Work::Disk(Command::Zero { offset, len, .. })) => {
                    prop_assert!(export.has(offset, len) && writable);
                }
                Ok(Work::Ranges(len)) => prop_assert!(writable && len <= place.len() as usize && len <= 4096),
                Ok(Work::Disk(command)) => prop_assert_eq!(command, Command::Flush),
                Ok(Work::Nothing) | Err(_) => {}
            }
        }

        #[test]
        fn no_range_leaves_its_disk(octets: Vec<u8>, size: u64) {
            let export = Export { name: String::new(), size, writable: true };
            for command in trims(&octets, &export).unwrap_or_default() {
                let Command::Trim { offset, len, .. } = command else { unreachable!("{command:?}") };
                prop_assert!(export.has(offset, len));
            }
        }
    }
}

//! Capsules: a command with a description of its data's place, and the answer to one.

use super::octets::{le16, le32, le64, put};
use super::status::Status;

/// Octets of a submission queue entry, with which each capsule of a command begins.
pub const SQE_LEN: usize = 64;

/// Octets of a completion queue entry, which is the whole capsule of an answer.
pub const CQE_LEN: usize = 16;

/// The command's data are described by an SGL, which is the only way over Fabrics (Base,
/// "Submission Queue Entry", PSDT 01b), and it is no half of a fused pair.
const BY_SGL: u8 = 1 << 6;

/// A command: a submission queue entry (Base, "Common Command Format").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe {
    /// The command's number; [`FABRICS`](super::connect::FABRICS) for those of Fabrics.
    pub opcode: u8,
    /// Fused pairs, and how the data are described.
    pub flags: u8,
    /// The number by which the host knows the answer.
    pub cid: u16,
    /// The namespace; of a command of Fabrics the low octet is its kind.
    pub nsid: u32,
    /// The place of the data: see [`Sqe::place`].
    pub sgl: [u8; 16],
    /// Command Dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl Sqe {
    /// Makes a command.
    #[must_use]
    pub fn new(opcode: u8, cid: u16, nsid: u32, place: Place, cdw: [u32; 6]) -> Self {
        Sqe { opcode, flags: BY_SGL, cid, nsid, sgl: place.emit(), cdw }
    }

    /// Parses the front of a capsule. All octets are some command.
    #[must_use]
    pub fn parse(octets: &[u8; SQE_LEN]) -> Self {
        let mut sgl = [0; 16];
        sgl.copy_from_slice(&octets[24..40]);
        Sqe {
            opcode: octets[0],
            flags: octets[1],
            cid: le16(octets, 2),
            nsid: le32(octets, 4),
            sgl,
            cdw: std::array::from_fn(|at| le32(octets, 40 + 4 * at)),
        }
    }

    /// Returns the octets of the command.
    #[must_use]
    pub fn emit(&self) -> [u8; SQE_LEN] {
        let mut octets = [0; SQE_LEN];
        (octets[0], octets[1]) = (self.opcode, self.flags);
        put(&mut octets, 2, self.cid.to_le_bytes());
        put(&mut octets, 4, self.nsid.to_le_bytes());
        put(&mut octets, 24, self.sgl);
        for (at, dword) in self.cdw.iter().enumerate() {
            put(&mut octets, 40 + 4 * at, dword.to_le_bytes());
        }
        octets
    }

    /// Returns the place of the command's data.
    ///
    /// # Errors
    /// What the host is to be told of a description that is not supported.
    pub fn place(&self) -> Result<Place, Status> {
        if self.flags != BY_SGL {
            return Err(Status::INVALID_FIELD);
        }
        Place::parse(&self.sgl)
    }
}

/// The place of a command's data: an SGL descriptor (Base, "Scatter Gather List").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory of the host (Keyed SGL Data Block descriptor).
    Keyed {
        /// The Tagged Offset.
        address: u64,
        /// Octets there: fewer than 2^24.
        len: u32,
        /// The STag.
        key: u32,
        /// The answer is to invalidate the key (subtype Fh).
        invalidate: bool,
    },
    /// Octets behind the command in its capsule (SGL Data Block descriptor by offset).
    InCapsule {
        /// The first, counted from the end of the command.
        offset: u64,
        /// The number of octets.
        len: u32,
    },
}

/// Type and subtype of the descriptors.
const KEYED: u8 = 0x40;
const KEYED_INVALIDATE: u8 = 0x4f;
const IN_CAPSULE: u8 = 0x01;

impl Place {
    /// The place of a command that has no data.
    pub const NONE: Place = Place::Keyed { address: 0, len: 0, key: 0, invalidate: false };

    fn parse(octets: &[u8; 16]) -> Result<Self, Status> {
        match octets[15] {
            kind @ (KEYED | KEYED_INVALIDATE) => Ok(Place::Keyed {
                address: le64(octets, 0),
                // Three octets; the fourth is the first of the key.
                len: le32(octets, 8) & 0x00ff_ffff,
                key: le32(octets, 11),
                invalidate: kind == KEYED_INVALIDATE,
            }),
            IN_CAPSULE => Ok(Place::InCapsule { offset: le64(octets, 0), len: le32(octets, 8) }),
            _ => Err(Status::SGL_TYPE),
        }
    }

    fn emit(self) -> [u8; 16] {
        let mut octets = [0; 16];
        match self {
            Place::Keyed { address, len, key, invalidate } => {
                put(&mut octets, 0, address.to_le_bytes());
                put(&mut octets, 8, len.to_le_bytes());
                put(&mut octets, 11, key.to_le_bytes());
                octets[15] = if invalidate { KEYED_INVALIDATE } else { KEYED };
            }
            Place::InCapsule { offset, len } => {
                put(&mut octets, 0, offset.to_le_bytes());
                put(&mut octets, 8, len.to_le_bytes());
                octets[15] = IN_CAPSULE;
            }
        }
        octets
    }

    /// Returns how many octets there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Place::Keyed { len, .. } | Place::InCapsule { len, .. } => *len,
        }
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key that the answer is to invalidate.
    #[must_use]
    pub fn invalidates(&self) -> Option<u32> {
        match self {
            Place::Keyed { key, invalidate: true, .. } => Some(*key),
            _ => None,
        }
    }
}

/// An answer: a completion queue entry (Base, "Common Completion Queue Entry Layout").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The command's result.
    pub result: u64,
    /// The head of the submission queue: the place up to which commands have been taken.
    pub head: u16,
    /// The number of the command.
    pub cid: u16,
    /// The outcome.
    pub status: Status,
}

impl Cqe {
    /// Parses an answer. All octets are some answer.
    #[must_use]
    pub fn parse(octets: &[u8; CQE_LEN]) -> Self {
        Cqe {
            result: le64(octets, 0),
            head: le16(octets, 8),
            cid: le16(octets, 12),
            // Bit 0 is the phase tag, which is nothing over Fabrics.
            status: Status(le16(octets, 14) >> 1),
        }
    }

    /// Returns the octets of the answer.
    #[must_use]
    pub fn emit(&self) -> [u8; CQE_LEN] {
        let mut octets = [0; CQE_LEN];
        put(&mut octets, 0, self.result.to_le_bytes());
        put(&mut octets, 8, self.head.to_le_bytes());
        put(&mut octets, 12, self.cid.to_le_bytes());
        put(&mut octets, 14, (self.status.0 << 1).to_le_bytes());
        octets
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Base, "Common Command Format", "Keyed SGL Data Block descriptor".
    #[test]
    fn a_command_is_written_as_the_specification_has_it() {
        let place = Place::Keyed { address: 0x1122, len: 0x0001_0002, key: 0xa1b2_c3d4, invalidate: true };
        let sqe = Sqe::new(0x02, 0x0304, 1, place, [5, 6, 7, 8, 9, 10]);
        let octets = sqe.emit();
        assert_eq!(octets[..8], [2, 0x40, 4, 3, 1, 0, 0, 0]);
        assert_eq!(octets[24..40], *b"\x22\x11\0\0\0\0\0\0\x02\0\x01\xd4\xc3\xb2\xa1\x4f");
        assert_eq!((octets[40], octets[60]), (5, 10));
        assert_eq!(Sqe::parse(&octets).place(), Ok(place));
        let place = Place::InCapsule { offset: 3, len: 1024 };
        let octets = Sqe::new(1, 0, 1, place, [0; 6]).emit();
        assert_eq!(octets[24..40], *b"\x03\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\x01");
        assert_eq!(Sqe::parse(&octets).place(), Ok(place));
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let mut octets = Sqe::new(1, 0, 1, Place::NONE, [0; 6]).emit();
        for kind in 0..=255 {
            octets[39] = kind;
            let is_known = [0x40, 0x4f, 0x01].contains(&kind);
            let place = Sqe::parse(&octets).place();
            assert_eq!(place.err(), (!is_known).then_some(Status::SGL_TYPE), "{kind}");
        }
        octets[39] = KEYED;
        for flags in [0, 1, 0x41, 0x80, 0xc0] {
            octets[1] = flags;
            assert_eq!(Sqe::parse(&octets).place(), Err(Status::INVALID_FIELD), "{flags}");
        }
    }

    /// Base, "Common Completion Queue Entry Layout".
    #[test]
    fn an_answer_is_written_as_the_specification_has_it() {
        let cqe = Cqe { result: 0x0102, head: 3, cid: 0x0405, status: Status::LBA_RANGE };
        assert_eq!(cqe.emit(), *b"\x02\x01\0\0\0\0\0\0\x03\0\0\0\x05\x04\0\x81");
        assert_eq!(Cqe::parse(&cqe.emit()), cqe);
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_so_that_it_parses_alike(octets: [u8; SQE_LEN]) {
            let sqe = Sqe::parse(&octets);
            prop_assert_eq!(Sqe::parse(&sqe.emit()), sqe);
            if let Ok(place) = sqe.place() {
                prop_assert_eq!(Place::parse(&place.emit()), Ok(place));
            }
        }
    }
}

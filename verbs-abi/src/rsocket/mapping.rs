//! Memory of one program that the other may write to, by offsets that both know.

use super::Place;
use super::message::part;

/// A part of a program's memory: `place`, which peers know by the offsets from `offset` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) place: Place,
}

impl Mapping {
    /// Octets of a mapping in a table.
    pub(crate) const LEN: usize = 8 + Place::LEN;

    /// Returns the mapping as it is written to the table of a peer, in the peer's order of octets.
    pub(crate) fn encode(self, is_big_endian: bool) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        let offset = if is_big_endian { self.offset.to_be_bytes() } else { self.offset.to_le_bytes() };
        octets[..8].copy_from_slice(&offset);
        octets[8..].copy_from_slice(&self.place.encode(is_big_endian));
        octets
    }

    /// Reads a mapping that a peer has written to our table, in our order of octets.
    pub(crate) fn decode(octets: &[u8; Self::LEN]) -> Mapping {
        Mapping { offset: u64::from_ne_bytes(part(octets, 0)), place: Place::decode(&part(octets, 8)) }
    }

    /// Returns what the mapping has from `offset` on, if it has any of it.
    pub(crate) fn from(self, offset: u64) -> Option<Place> {
        let skip = offset.checked_sub(self.offset).and_then(|skip| u32::try_from(skip).ok())?;
        let len = self.place.len.checked_sub(skip).filter(|len| *len > 0)?;
        Some(Place { addr: self.place.addr.wrapping_add(skip.into()), len, ..self.place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: Mapping = Mapping { offset: 1000, place: Place { addr: 0x7000, key: 3, len: 100 } };

    #[test]
    fn a_mapping_is_read_as_it_is_written() {
        let octets = MAPPING.encode(cfg!(target_endian = "big"));
        assert_eq!((Mapping::decode(&octets), octets.len()), (MAPPING, 24));
        assert_eq!(MAPPING.encode(true)[..16], [0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0, 0, 0, 0x70, 0]);
    }

    #[test]
    fn offsets_outside_of_a_mapping_have_no_place() {
        assert_eq!(MAPPING.from(1000), Some(MAPPING.place));
        assert_eq!(MAPPING.from(1099), Some(Place { addr: 0x7063, key: 3, len: 1 }));
        for offset in [0, 999, 1100, 1000 + (1 << 32), u64::MAX] {
            assert_eq!(MAPPING.from(offset), None);
        }
    }
}

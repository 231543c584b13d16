//! Private data of a connection, messages, and places for data, as octets.

use super::Violation;

/// A place in the sender's memory: first octet, key and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) addr: u64,
    pub(crate) key: u32,
    pub(crate) len: u32,
}

impl Place {
    /// Octets of a place in a list.
    pub(crate) const LEN: usize = 16;

    /// Returns the place as it is written to the list of a peer, in the peer's order of octets.
    pub(crate) fn encode(self, is_big_endian: bool) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        let (addr, key, len) = if is_big_endian {
            (self.addr.to_be_bytes(), self.key.to_be_bytes(), self.len.to_be_bytes())
        } else {
            (self.addr.to_le_bytes(), self.key.to_le_bytes(), self.len.to_le_bytes())
        };
        octets[..8].copy_from_slice(&addr);
        octets[8..12].copy_from_slice(&key);
        octets[12..].copy_from_slice(&len);
        octets
    }

    /// Reads a place that a peer has written to a list of ours, in our order of octets.
    pub(crate) fn decode(octets: &[u8; Self::LEN]) -> Place {
        Place {
            addr: u64::from_ne_bytes(part(octets, 0)),
            key: u32::from_ne_bytes(part(octets, 8)),
            len: u32::from_ne_bytes(part(octets, 12)),
        }
    }

    pub(super) fn decode_be(octets: &[u8]) -> Place {
        Place {
            addr: u64::from_be_bytes(part(octets, 0)),
            key: u32::from_be_bytes(part(octets, 8)),
            len: u32::from_be_bytes(part(octets, 12)),
        }
    }
}

/// Returns `N` octets from `at` on, of a slice that is long enough.
pub(super) fn part<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&octets[at..at + N]);
    out
}

/// Private data of a connection, by which each end tells the other: receives that are posted,
/// where its list of places is (`len` is a number of places), the first place for data, and how
/// many mappings the table behind the list has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) is_big_endian: bool,
    pub(crate) credits: u16,
    pub(crate) list: Place,
    pub(crate) data: Place,
    pub(crate) mappings: u16,
}

impl Hello {
    const LEN: usize = 40;
    const VERSION: u8 = 1;
    const BIG_ENDIAN: u8 = 1;
    const HAS_MAPPINGS: u8 = 2;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let has_mappings = self.mappings > 0;
        let flags = [(self.is_big_endian, Self::BIG_ENDIAN), (has_mappings, Self::HAS_MAPPINGS)];
        let flags = flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum();
        let mut octets = vec![Self::VERSION, flags];
        octets.extend(self.credits.to_be_bytes());
        // Three are reserved.
        octets.extend([0, 0, 0, scale_of(self.mappings)]);
        octets.extend(self.list.encode(true));
        octets.extend(self.data.encode(true));
        octets
    }

    /// Reads private data. Some devices hand over more octets than were sent.
    pub(crate) fn decode(octets: &[u8]) -> Result<Hello, Violation> {
        if octets.len() < Self::LEN || octets[0] != Self::VERSION {
            return Err(Violation);
        }
        let hello = Hello {
            is_big_endian: octets[1] & Self::BIG_ENDIAN != 0,
            credits: u16::from_be_bytes(part(octets, 2)),
            list: Place::decode_be(&octets[8..24]),
            data: Place::decode_be(&octets[24..40]),
            mappings: if octets[1] & Self::HAS_MAPPINGS != 0 { of_scale(octets[7]) } else { 0 },
        };
        if hello.list.len == 0 { Err(Violation) } else { Ok(hello) }
    }
}

/// Returns the octet that stands for a number of mappings: up to 128 of them, and multiples of 256.
fn scale_of(mappings: u16) -> u8 {
    u8::try_from(mappings).ok().filter(|number| *number <= 128).unwrap_or((mappings >> 8) as u8 | 0x80)
}

fn of_scale(octet: u8) -> u16 {
    if octet <= 128 { octet.into() } else { u16::from(octet & 0x7f) << 8 }
}

/// Returns the number of mappings that a peer is told of where a program asks for so many.
pub(crate) fn announced(mappings: u16) -> u16 {
    of_scale(scale_of(mappings.min(0x7fff)))
}

/// A message: the four octets of a Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A number of octets that have been written to the place.
    Data(u32),
    /// Data may be sent up to this message; there may be a new place.
    Credits(u16),
    /// The sender is gone.
    Disconnect,
    /// Nothing.
    KeepAlive,
    /// The sender sends no more.
    Shutdown,
    /// The mapping with this number has been written to the table.
    Map(u16),
}

impl Message {
    pub(crate) const LEN: usize = 4;
    /// The greatest number of octets that a message can tell of.
    const MOST: u32 = (1 << 29) - 1;

    /// Returns the octets, in the sender's order.
    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let (kind, value) = match self {
            Message::Data(len) => (0, len & Self::MOST),
            Message::Credits(number) => (4, number.into()),
            Message::Map(number) => (6, number.into()),
            Message::Disconnect => (7, 0),
            Message::KeepAlive => (7, 1),
            Message::Shutdown => (7, 2),
        };
        ((kind << 29) | value).to_ne_bytes()
    }

    /// Reads a message of a peer with this order of octets.
    pub(crate) fn decode(octets: [u8; Self::LEN], is_big_endian: bool) -> Result<Message, Violation> {
        let word = if is_big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) };
        match (word >> 29, word & Self::MOST) {
            (0, len) => Ok(Message::Data(len)),
            (4, number) => Ok(Message::Credits(number as u16)),
            (6, number) => u16::try_from(number).map(Message::Map).map_err(|_| Violation),
            (7, 0) => Ok(Message::Disconnect),
            (7, 1) => Ok(Message::KeepAlive),
            (7, 2) => Ok(Message::Shutdown),
            _ => Err(Violation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_are_read_as_they_are_written() {
        let place = |addr, len| Place { addr, key: 7, len };
        let hello = Hello {
            is_big_endian: true,
            credits: 384,
            list: place(0x1000, 2),
            data: place(0x2000, 65536),
            mappings: 0,
        };
        let octets = hello.encode();
        assert_eq!((octets.len(), &octets[..8]), (40, &[1, 1, 1, 128, 0, 0, 0, 0][..]));
        let more = Hello { mappings: 512, ..hello };
        assert_eq!(
            (&more.encode()[..8], Hello::decode(&more.encode())),
            (&[1, 3, 1, 128, 0, 0, 0, 0x82][..], Ok(more))
        );
        assert_eq!(Hello::decode(&octets), Ok(hello));
        assert_eq!(Hello::decode(&octets[..39]), Err(Violation));
        assert_eq!(Hello::decode(&[2; 40]), Err(Violation));
    }

    #[test]
    fn a_list_without_places_is_refused() {
        assert_eq!(Hello::decode(&Hello { credits: 1, ..Hello::default() }.encode()), Err(Violation));
    }

    /// Peers without the flag have no table, whatever the octet says.
    #[test]
    fn numbers_of_mappings_are_rounded_as_they_are_told() {
        for (asked, told) in
            [(0, 0), (1, 1), (128, 128), (200, 128), (256, 256), (700, 512), (0xffff, 0x7f00)]
        {
            assert_eq!(announced(asked), told);
            assert_eq!(of_scale(scale_of(told)), told);
        }
        let mut octets =
            Hello { list: Place { len: 2, ..Place::default() }, mappings: 9, ..Hello::default() }.encode();
        octets[1] = 0;
        assert_eq!(Hello::decode(&octets).unwrap().mappings, 0);
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        use Message::{Credits, Data, Disconnect, KeepAlive, Map, Shutdown};
        for message in [Data(70_000), Credits(65_535), Disconnect, KeepAlive, Shutdown, Map(9)] {
            assert_eq!(Message::decode(message.encode(), cfg!(target_endian = "big")), Ok(message));
        }
        assert_eq!(Message::decode([0, 0, 0, 0x20], false), Err(Violation));
        assert_eq!(Message::decode([0, 0, 1, 0xc0], false), Err(Violation));
    }
}

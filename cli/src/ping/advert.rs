//! The 16 octets that tell the server where to Read or Write, and the text that is sent to and fro.

use rddp_rnic::{MemoryRegion, Remote};

/// A region of the client's memory. All numbers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advert {
    pub(super) remote: Remote,
    pub(super) len: u32,
}

impl Advert {
    pub(super) const LEN: usize = 16;

    /// The advertisement of all of `region`.
    pub(super) fn of(region: &MemoryRegion) -> Self {
        Advert { remote: region.remote(0), len: u32::try_from(region.len()).unwrap_or(u32::MAX) }
    }

    pub(super) fn emit(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[..Remote::LEN].copy_from_slice(&self.remote.to_octets());
        octets[Remote::LEN..].copy_from_slice(&self.len.to_be_bytes());
        octets
    }

    pub(super) fn parse(octets: &[u8]) -> Option<Self> {
        let (remote, len) = octets.split_first_chunk()?;
        let len = u32::from_be_bytes(len.try_into().ok()?);
        Some(Advert { remote: Remote::from_octets(remote), len })
    }
}

/// Returns rping's text for a round: the number of the round, letters that begin one further in
/// each round, NUL.
pub(super) fn text(round: u64, size: usize) -> Vec<u8> {
    let head = format!("rdma-ping-{round}: ");
    let letters = b'A'..=b'z';
    let first = usize::try_from(round % letters.len() as u64).unwrap_or(0);
    let mut text: Vec<u8> = head.into_bytes();
    text.extend(letters.cycle().skip(first).take(size.saturating_sub(text.len())));
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use rddp_rnic::Stag;

    use super::*;

    /// A capture of rping in the lab: address, STag, length.
    #[test]
    fn an_advertisement_has_rpings_form() {
        let advert =
            Advert { remote: Remote { stag: Stag(0x00ab_cd01), to: 0x1122_3344_5566_7788 }, len: 64 };
        let octets = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0xab, 0xcd, 1, 0, 0, 0, 64];
        assert_eq!(advert.emit(), octets);
        assert_eq!(Advert::parse(&octets), Some(advert));
        assert_eq!(Advert::parse(&octets[..15]), None);
    }

    #[test]
    fn the_text_is_rpings() {
        assert_eq!(text(0, 26), b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(text(1, 26), b"rdma-ping-1: BCDEFGHIJKLM\0");
        assert_eq!(text(57, 26), b"rdma-ping-57: zABCDEFGHIJ\0");
        assert_eq!(text(58, 26), b"rdma-ping-58: ABCDEFGHIJK\0");
        assert!(text(u64::MAX, 26).ends_with(b"\0"));
    }
}

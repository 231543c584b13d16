//! Log pages (Base, "Get Log Page command"), and that of discovery.

use super::capsule::{Place, Sqe};
use super::octets::{le64, put, put_text, text};

/// The opcode of Get Log Page.
pub const GET_LOG_PAGE: u8 = 0x02;

/// Numbers of log pages.
pub mod page {
    /// Errors.
    pub const ERRORS: u8 = 0x01;
    /// Health ("SMART").
    pub const HEALTH: u8 = 0x02;
    /// Slots of firmware.
    pub const FIRMWARE: u8 = 0x03;
    /// Discovery: see [`emit_discovery`](super::emit_discovery).
    pub const DISCOVERY: u8 = 0x70;
}

/// A command for a part of a log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// The number of the page.
    pub page: u8,
    /// The octets that are asked for, a multiple of 4 and not 0.
    pub len: u64,
    /// The first of them.
    pub offset: u64,
}

impl GetLogPage {
    /// Parses the command. All octets are some such command.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let [cdw10, cdw11, cdw12, cdw13, ..] = sqe.cdw.map(u64::from);
        let dwords = (cdw11 & 0xffff) << 16 | cdw10 >> 16;
        GetLogPage { page: cdw10 as u8, len: 4 * (dwords + 1), offset: cdw13 << 32 | cdw12 }
    }

    /// Makes the command, with data at that place.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, place: Place) -> Sqe {
        let dwords = (self.len / 4).saturating_sub(1);
        let cdw10 = (dwords as u32) << 16 | u32::from(self.page);
        let cdw = [cdw10, (dwords >> 16) as u32 & 0xffff, self.offset as u32, (self.offset >> 32) as u32];
        Sqe::new(GET_LOG_PAGE, cid, nsid, place, [cdw[0], cdw[1], cdw[2], cdw[3], 0, 0])
    }

    /// Returns the part of a page that was asked for, and zeroes for what is behind its end; `None`
    /// if it begins behind that.
    #[must_use]
    pub fn part(&self, page: &[u8]) -> Option<Vec<u8>> {
        let from = usize::try_from(self.offset).ok().and_then(|offset| page.get(offset..))?;
        let len = usize::try_from(self.len).ok()?;
        let mut part = from[..from.len().min(len)].to_vec();
        part.resize(len, 0);
        Some(part)
    }
}

/// Returns the page of health (Base, "SMART / Health Information"): nothing is wrong, and nothing
/// is counted.
#[must_use]
pub fn emit_health() -> Vec<u8> {
    let mut octets = vec![0; 512];
    // Available Spare, in percent.
    octets[3] = 100;
    octets
}

/// Returns the page of firmware (Base, "Firmware Slot Information"): one slot, which is in use.
#[must_use]
pub fn emit_firmware(version: &str) -> Vec<u8> {
    let mut octets = vec![0; 512];
    octets[0] = 1;
    put_text(&mut octets[8..16], version, b' ');
    octets
}

/// A subsystem, and the way to it: an entry of the page of discovery (Base, "Discovery Log Page
/// Entry").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The way is by RDMA. (Another target may tell of other ways.)
    pub is_rdma: bool,
    /// The subsystem is one of discovery.
    pub is_discovery: bool,
    /// The address is one of IPv6.
    pub is_ipv6: bool,
    /// The address, as text.
    pub address: String,
    /// The port, as text.
    pub port: String,
    /// The name of the subsystem.
    pub subsystem: String,
}

/// Octets of the header of the page, and of an entry.
pub const ENTRY_LEN: usize = 1024;

const RDMA: u8 = 1;
const IPV4: u8 = 1;
const IPV6: u8 = 2;
/// The kind of a subsystem: one of discovery that is somewhere else, or one with disks. (3, one of
/// discovery that is this one, tells nothing new.)
const REFERRAL: u8 = 1;
const NVME: u8 = 2;

/// Returns the page of discovery (Base, "Discovery Log Page").
#[must_use]
pub fn emit_discovery(entries: &[Entry]) -> Vec<u8> {
    let mut octets = vec![0; ENTRY_LEN * (1 + entries.len())];
    // The generation never changes: the disks of a server stay the same.
    put(&mut octets, 0, 1u64.to_le_bytes());
    put(&mut octets, 8, (entries.len() as u64).to_le_bytes());
    for (entry, octets) in entries.iter().zip(octets[ENTRY_LEN..].chunks_mut(ENTRY_LEN)) {
        entry.emit(octets);
    }
    octets
}

/// Returns how many entries a page of discovery has, by its header.
#[must_use]
pub fn entries(header: &[u8; ENTRY_LEN]) -> u64 {
    le64(header, 8)
}

impl Entry {
    fn emit(&self, octets: &mut [u8]) {
        octets[0] = RDMA;
        octets[1] = if self.is_ipv6 { IPV6 } else { IPV4 };
        octets[2] = if self.is_discovery { REFERRAL } else { NVME };
        // TREQ: a secure channel is not specified. All are by the one port; a controller is any.
        put(octets, 4, 1u16.to_le_bytes());
        put(octets, 6, super::connect::ANY_CONTROLLER.to_le_bytes());
        // Commands of the admin queue, at most.
        put(octets, 8, super::ADMIN_COMMANDS.to_le_bytes());
        put_text(&mut octets[32..64], &self.port, b' ');
        put_text(&mut octets[256..512], &self.subsystem, 0);
        put_text(&mut octets[512..768], &self.address, b' ');
        // RDMA, "Transport Specific Address Subtype": reliable connected, iWARP, by RDMA_CM.
        (octets[768], octets[769], octets[770]) = (1, 5, 1);
    }

    /// Parses an entry. All octets are some entry.
    #[must_use]
    pub fn parse(octets: &[u8; ENTRY_LEN]) -> Self {
        Entry {
            is_rdma: octets[0] == RDMA && [IPV4, IPV6].contains(&octets[1]),
            is_discovery: octets[2] != NVME,
            is_ipv6: octets[1] == IPV6,
            port: text(&octets[32..64]),
            subsystem: text(&octets[256..512]),
            address: text(&octets[512..768]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Base, "Get Log Page command".
    #[test]
    fn a_question_is_written_as_the_specification_has_it() {
        let asked = GetLogPage { page: page::DISCOVERY, len: 4 << 18, offset: 0x0102_0304_0506 };
        let sqe = asked.command(1, 0, Place::NONE);
        assert_eq!(sqe.cdw, [0xffff_0070, 3, 0x0304_0506, 0x0102, 0, 0]);
        assert_eq!(GetLogPage::parse(&sqe), asked);
    }

    #[test]
    fn a_part_of_a_page_is_as_long_as_was_asked() {
        let part = |len, offset| GetLogPage { page: 1, len, offset }.part(b"abcdefgh");
        assert_eq!(part(4, 2).unwrap(), b"cdef");
        assert_eq!(part(8, 6).unwrap(), b"gh\0\0\0\0\0\0");
        assert_eq!(part(4, 8).unwrap(), b"\0\0\0\0");
        assert_eq!((part(4, 9), part(4, u64::MAX)), (None, None));
    }

    /// Base, "Discovery Log Page Entry"; RDMA, "Transport Specific Address Subtype".
    #[test]
    fn discovery_is_written_as_the_specification_has_it() {
        let entry = Entry {
            is_rdma: true,
            is_discovery: false,
            is_ipv6: true,
            address: "fd77::1".into(),
            port: "4420".into(),
            subsystem: "nqn.x:disk".into(),
        };
        let octets = emit_discovery(&[entry.clone(), entry.clone()]);
        assert_eq!(octets.len(), 3 * ENTRY_LEN);
        assert_eq!(entries(octets[..ENTRY_LEN].try_into().unwrap()), 2);
        let octets: &[u8; ENTRY_LEN] = octets[ENTRY_LEN..2 * ENTRY_LEN].try_into().unwrap();
        assert_eq!(octets[..10], [1, 2, 2, 0, 1, 0, 0xff, 0xff, 32, 0]);
        assert_eq!((&octets[32..37], &octets[768..771]), (&b"4420 "[..], &[1, 5, 1][..]));
        assert_eq!(Entry::parse(octets), entry);
        assert!(!Entry::parse(&[0; ENTRY_LEN]).is_rdma);
    }

    #[test]
    fn pages_of_a_controller_say_that_nothing_is_wrong() {
        assert_eq!((emit_health().len(), emit_health()[..4].to_vec()), (512, vec![0, 0, 0, 100]));
        assert_eq!(emit_firmware("0.1")[..12], *b"\x01\0\0\0\0\0\0\x000.1 ");
    }
}

//! Data structures of Identify (Base and NVM, "Identify command").

use super::capsule::{CQE_LEN, Place, SQE_LEN, Sqe};
use super::octets::{le16, le32, le64, put, put_text, text};

/// The opcode of Identify.
pub const IDENTIFY: u8 = 0x06;

/// Octets of each of these structures.
pub const IDENTIFY_LEN: usize = 4096;

/// The version that the target follows: 1.4.0.
pub const VERSION: u32 = 0x0001_0400;

/// The page of a host's memory in which limits are counted, by its logarithm (CAP.MPSMIN 0).
const PAGE_SHIFT: u32 = 12;

/// The structure that is asked for (CNS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Asked {
    /// One namespace: a [`Namespace`].
    Namespace = 0x00,
    /// The controller: a [`Controller`].
    Controller = 0x01,
    /// The numbers of namespaces: see [`emit_list`].
    Namespaces = 0x02,
    /// The identifiers of a namespace: see [`emit_identifiers`].
    Identifiers = 0x03,
    /// Limits of the controller's commands for disks; zeroes, of which none is a limit.
    Limits = 0x06,
}

impl Asked {
    /// Returns what a command asks for; `None` of what is not known here.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Option<Self> {
        use Asked::*;
        let all = [Namespace, Controller, Namespaces, Identifiers, Limits];
        all.into_iter().find(|asked| *asked as u8 == sqe.cdw[0] as u8)
    }

    /// Makes the command.
    #[must_use]
    pub fn command(self, cid: u16, nsid: u32, place: Place) -> Sqe {
        Sqe::new(IDENTIFY, cid, nsid, place, [self as u32, 0, 0, 0, 0, 0])
    }
}

/// A controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The number.
    pub cntlid: u16,
    /// The controller is one of discovery, and has no disk.
    pub is_discovery: bool,
    /// The name of its subsystem.
    pub subsystem: String,
    /// The serial number of its subsystem, up to 20 letters.
    pub serial: String,
    /// The model, up to 40 letters.
    pub model: String,
    /// The version of its program, up to 8 letters.
    pub firmware: String,
    /// Octets of the longest read or write, a power of two of pages; `None` for no limit.
    pub max_transfer: Option<u64>,
    /// Octets of data that the capsule of a command may have, right behind the command.
    pub in_capsule: u32,
    /// Commands of a queue at a time; 0 where that is not told.
    pub commands: u16,
    /// The number of its namespaces, at most.
    pub namespaces: u32,
    /// Namespaces take Write Zeroes.
    pub zeroes: bool,
    /// Namespaces take Dataset Management, by which blocks are deallocated.
    pub deallocates: bool,
    /// A volatile cache has octets that were written, until a Flush.
    pub has_cache: bool,
}

/// Places in the structure of a controller.
mod at {
    use std::ops::Range;

    pub(super) const SERIAL: Range<usize> = 4..24;
    pub(super) const MODEL: Range<usize> = 24..64;
    pub(super) const FIRMWARE: Range<usize> = 64..72;
    pub(super) const CMIC: usize = 76;
    pub(super) const MDTS: usize = 77;
    pub(super) const CNTLID: usize = 78;
    pub(super) const VER: usize = 80;
    pub(super) const CTRATT: usize = 96;
    pub(super) const CNTRLTYPE: usize = 111;
    pub(super) const ACL: usize = 258;
    pub(super) const AERL: usize = 259;
    pub(super) const FRMW: usize = 260;
    pub(super) const LPA: usize = 261;
    pub(super) const KAS: usize = 320;
    pub(super) const SQES: usize = 512;
    pub(super) const MAXCMD: usize = 514;
    pub(super) const NN: usize = 516;
    pub(super) const ONCS: usize = 520;
    pub(super) const VWC: usize = 525;
    pub(super) const SGLS: usize = 536;
    pub(super) const SUBNQN: Range<usize> = 768..1024;
    pub(super) const IOCCSZ: usize = 1792;
    pub(super) const IORCSZ: usize = 1796;
    pub(super) const ICDOFF: usize = 1800;
    pub(super) const MSDBD: usize = 1803;
}

/// Dataset Management and Write Zeroes, in ONCS.
const DSM: u16 = 1 << 2;
const WRITE_ZEROES: u16 = 1 << 3;

/// SGLs; keyed ones; places of data in the capsule by their offsets.
const SGLS: u32 = 1 | 1 << 2 | IN_CAPSULE;
const IN_CAPSULE: u32 = 1 << 20;

impl Controller {
    /// Returns the structure (Base, "Identify Controller data structure").
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut octets = vec![0; IDENTIFY_LEN];
        put_text(&mut octets[at::SERIAL], &self.serial, b' ');
        put_text(&mut octets[at::MODEL], &self.model, b' ');
        put_text(&mut octets[at::FIRMWARE], &self.firmware, b' ');
        // The subsystem has several controllers: one for each of its hosts.
        octets[at::CMIC] = 1 << 1;
        octets[at::MDTS] = self.max_transfer.map_or(0, |octets| {
            let shift = octets.max(1).ilog2();
            shift.saturating_sub(PAGE_SHIFT).max(1) as u8
        });
        put(&mut octets, at::CNTLID, self.cntlid.to_le_bytes());
        put(&mut octets, at::VER, VERSION.to_le_bytes());
        // 128-bit host identifiers; keep-alive by any command, not Keep Alive alone.
        put(&mut octets, at::CTRATT, (1u32 | 1 << 6).to_le_bytes());
        octets[at::CNTRLTYPE] = if self.is_discovery { 2 } else { 1 };
        // Four aborts and four events at a time, less one each.
        (octets[at::ACL], octets[at::AERL]) = (3, super::EVENTS as u8 - 1);
        // One slot of firmware, which is only read.
        octets[at::FRMW] = 1 | 1 << 1;
        // Get Log Page takes lengths and offsets of all bits.
        octets[at::LPA] = 1 << 2;
        // The keep-alive time is counted in units of 100 ms.
        put(&mut octets, at::KAS, 10u16.to_le_bytes());
        (octets[at::SQES], octets[at::SQES + 1]) = (0x66, 0x44);
        put(&mut octets, at::MAXCMD, self.commands.to_le_bytes());
        put(&mut octets, at::NN, self.namespaces.to_le_bytes());
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let oncs = flag(self.deallocates, DSM) | flag(self.zeroes, WRITE_ZEROES);
        put(&mut octets, at::ONCS, oncs.to_le_bytes());
        octets[at::VWC] = self.has_cache.into();
        put(&mut octets, at::SGLS, SGLS.to_le_bytes());
        put_text(&mut octets[at::SUBNQN], &self.subsystem, 0);
        put(&mut octets, at::IOCCSZ, ((SQE_LEN as u32 + self.in_capsule) / 16).to_le_bytes());
        put(&mut octets, at::IORCSZ, (CQE_LEN as u32 / 16).to_le_bytes());
        // With more than one descriptor, Linux 5.4 to 5.12 sends wrong data.
        octets[at::MSDBD] = 1;
        octets
    }

    /// Parses the structure. All octets are some controller.
    #[must_use]
    pub fn parse(octets: &[u8; IDENTIFY_LEN]) -> Self {
        let oncs = le16(octets, at::ONCS);
        let mdts = octets[at::MDTS];
        Controller {
            cntlid: le16(octets, at::CNTLID),
            is_discovery: octets[at::CNTRLTYPE] == 2,
            subsystem: text(&octets[at::SUBNQN]),
            serial: text(&octets[at::SERIAL]),
            model: text(&octets[at::MODEL]),
            firmware: text(&octets[at::FIRMWARE]),
            max_transfer: (1..=31).contains(&mdts).then(|| 1 << (u32::from(mdts) + PAGE_SHIFT)),
            in_capsule: in_capsule(octets),
            commands: le16(octets, at::MAXCMD),
            namespaces: le32(octets, at::NN),
            zeroes: oncs & WRITE_ZEROES != 0,
            deallocates: oncs & DSM != 0,
            has_cache: octets[at::VWC] & 1 != 0,
        }
    }
}

/// Returns how many octets of data may be right behind a command: none where the controller has
/// them at another place (Base, "Identify Controller data structure", ICDOFF), or no SGL for them.
fn in_capsule(octets: &[u8; IDENTIFY_LEN]) -> u32 {
    if le16(octets, at::ICDOFF) != 0 || le32(octets, at::SGLS) & IN_CAPSULE == 0 {
        return 0;
    }
    le32(octets, at::IOCCSZ).saturating_mul(16).saturating_sub(SQE_LEN as u32)
}

/// A namespace: a disk of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Blocks that it has.
    pub blocks: u64,
    /// The logarithm of a block's octets.
    pub block_shift: u8,
    /// Octets that each block has besides, for a program's own use.
    pub metadata: u16,
    /// A number that no other disk has; 0 for none.
    pub nguid: [u8; 16],
    /// The namespace may be written.
    pub writable: bool,
}

/// Places in the structure of a namespace.
const NCAP: usize = 8;
const NUSE: usize = 16;
const FLBAS: usize = 26;
const NMIC: usize = 30;
const DLFEAT: usize = 33;
const NSATTR: usize = 99;
const NGUID: usize = 104;
const LBAF: usize = 128;

impl Namespace {
    /// Returns the structure (NVM, "Identify Namespace data structure").
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut octets = vec![0; IDENTIFY_LEN];
        for at in [0, NCAP, NUSE] {
            put(&mut octets, at, self.blocks.to_le_bytes());
        }
        // Several controllers may have it at a time.
        octets[NMIC] = 1;
        // Write Zeroes may deallocate. What deallocated blocks read as is not told: a disk that
        // cannot punch holes leaves them.
        octets[DLFEAT] = 1 << 3;
        octets[NSATTR] = (!self.writable).into();
        put(&mut octets, NGUID, self.nguid);
        put(&mut octets, LBAF, self.metadata.to_le_bytes());
        octets[LBAF + 2] = self.block_shift;
        octets
    }

    /// Parses the structure; `None` of a namespace that there is not, or whose blocks are of a size
    /// that makes no sense.
    #[must_use]
    pub fn parse(octets: &[u8; IDENTIFY_LEN]) -> Option<Self> {
        let format = LBAF + 4 * usize::from(octets[FLBAS] & 0xf);
        let (blocks, block_shift) = (le64(octets, 0), octets[format + 2]);
        let makes_sense =
            blocks > 0 && (9..32).contains(&block_shift) && blocks.leading_zeros() >= u32::from(block_shift);
        let mut nguid = [0; 16];
        nguid.copy_from_slice(&octets[NGUID..NGUID + 16]);
        makes_sense.then(|| Namespace {
            blocks,
            block_shift,
            metadata: le16(octets, format),
            nguid,
            writable: octets[NSATTR] & 1 == 0,
        })
    }
}

/// Returns the structure with the numbers of namespaces, in order (Base, "Active Namespace ID
/// list"). Those of which there is no room are left for the next question.
pub fn emit_list(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut octets = vec![0; IDENTIFY_LEN];
    for (at, number) in (0..IDENTIFY_LEN).step_by(4).zip(numbers) {
        put(&mut octets, at, number.to_le_bytes());
    }
    octets
}

/// Returns the numbers of namespaces of such a structure.
#[must_use]
pub fn parse_list(octets: &[u8; IDENTIFY_LEN]) -> Vec<u32> {
    let numbers = (0..IDENTIFY_LEN).step_by(4).map(|at| le32(octets, at));
    numbers.take_while(|number| *number != 0).collect()
}

/// Returns the structure with the one identifier of a namespace, its NGUID (Base, "Namespace
/// Identification Descriptor list").
#[must_use]
pub fn emit_identifiers(nguid: [u8; 16]) -> Vec<u8> {
    const TYPE_NGUID: u8 = 2;
    let mut octets = vec![0; IDENTIFY_LEN];
    (octets[0], octets[1]) = (TYPE_NGUID, 16);
    put(&mut octets, 4, nguid);
    octets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn controller() -> Controller {
        Controller {
            cntlid: 0x0102,
            is_discovery: false,
            subsystem: "nqn.x:disk".into(),
            serial: "12ab".into(),
            model: "rddp".into(),
            firmware: "0.1".into(),
            max_transfer: Some(1 << 20),
            in_capsule: 4096,
            commands: 128,
            namespaces: 1,
            zeroes: true,
            deallocates: true,
            has_cache: true,
        }
    }

    fn whole(octets: &[u8]) -> &[u8; IDENTIFY_LEN] {
        octets.try_into().unwrap()
    }

    /// Base, "Identify Controller data structure": what hosts refuse a controller without.
    #[test]
    fn a_controller_is_written_as_the_specification_has_it() {
        let octets = controller().emit();
        assert_eq!(Controller::parse(whole(&octets)), controller());
        assert_eq!((octets[4..9].as_ref(), octets[24..29].as_ref()), (&b"12ab "[..], &b"rddp "[..]));
        assert_eq!((octets[76], &octets[96..100], octets[111]), (2, &[0x41, 0, 0, 0][..], 1));
        assert_eq!(octets[258..262], [3, super::super::EVENTS as u8 - 1, 3, 4]);
        assert_eq!((octets[77], &octets[78..84]), (8, &[2, 1, 0, 4, 1, 0][..]));
        assert_eq!((octets[320], &octets[512..516]), (10, &[0x66, 0x44, 128, 0][..]));
        assert_eq!((&octets[520..522], octets[525]), (&[12, 0][..], 1));
        assert_eq!(octets[536..540], [5, 0, 0x10, 0]);
        assert_eq!(octets[768..779], *b"nqn.x:disk\0");
        assert_eq!(octets[1792..1800], [4, 1, 0, 0, 1, 0, 0, 0]);
        assert_eq!(octets[1803], 1);
        let none = Controller { max_transfer: None, is_discovery: true, ..controller() };
        assert_eq!(Controller::parse(whole(&none.emit())), none);
        for (zeroes, deallocates) in [(true, false), (false, true), (false, false)] {
            let some = Controller { zeroes, deallocates, has_cache: false, ..controller() };
            let mut octets = some.emit();
            // The other bits of VWC say how a Flush is done.
            octets[525] = 6;
            assert_eq!(Controller::parse(whole(&octets)), some);
        }
    }

    /// Base, "Identify Controller data structure": IOCCSZ, ICDOFF and SGLS.
    #[test]
    fn a_capsule_has_data_only_where_the_controller_takes_them_behind_the_command() {
        let told = |changes: &[(usize, u8)]| {
            let mut octets = controller().emit();
            changes.iter().for_each(|(at, octet)| octets[*at] = *octet);
            Controller::parse(whole(&octets)).in_capsule
        };
        assert_eq!(told(&[]), 4096);
        assert_eq!((told(&[(1792, 0x24), (1793, 0)]), told(&[(1792, 4), (1793, 0)])), (512, 0));
        assert_eq!((told(&[(1800, 1)]), told(&[(1801, 1)]), told(&[(538, 0)])), (0, 0, 0));
    }

    fn namespace() -> Namespace {
        Namespace { blocks: 0x1234, block_shift: 9, metadata: 0, nguid: [7; 16], writable: false }
    }

    /// NVM, "Identify Namespace data structure".
    #[test]
    fn a_namespace_is_written_as_the_specification_has_it() {
        let octets = namespace().emit();
        assert_eq!(Namespace::parse(whole(&octets)), Some(namespace()));
        assert_eq!((&octets[..3], &octets[8..10]), (&[0x34, 0x12, 0][..], &[0x34, 0x12][..]));
        assert_eq!((octets[30], octets[33]), (1, 8));
        assert_eq!((octets[99], octets[104], octets[130]), (1, 7, 9));
        for (blocks, block_shift) in [(0, 9), (1, 8), (1, 32), (1 << 55, 9), (u64::MAX, 12)] {
            let octets = Namespace { blocks, block_shift, ..namespace() }.emit();
            assert_eq!(Namespace::parse(whole(&octets)), None, "{blocks} {block_shift}");
        }
        let mut octets = namespace().emit();
        octets[26] = 3;
        octets[LBAF + 12..LBAF + 15].copy_from_slice(&[8, 0, 12]);
        let parsed = Namespace::parse(whole(&octets)).unwrap();
        assert_eq!((parsed.block_shift, parsed.metadata), (12, 8));
    }

    #[test]
    fn lists_are_written_as_the_specification_has_them() {
        assert_eq!(parse_list(whole(&emit_list([1, 0x0203]))), [1, 0x0203]);
        assert_eq!(emit_list([0x0203])[..5], [3, 2, 0, 0, 0]);
        assert_eq!(parse_list(whole(&emit_list(1..))).len(), 1024);
        assert_eq!(emit_identifiers([7; 16])[..6], [2, 16, 0, 0, 7, 7]);
        for asked in [Asked::Controller, Asked::Limits] {
            assert_eq!(Asked::parse(&asked.command(1, 0, Place::NONE)), Some(asked));
        }
        assert_eq!(Asked::parse(&Sqe::new(IDENTIFY, 1, 0, Place::NONE, [4, 0, 0, 0, 0, 0])), None);
    }

    proptest! {
        /// A target may tell anything: what is left is safe to count with.
        #[test]
        fn no_structure_is_too_wild(octet: u8, at in 0..IDENTIFY_LEN, fill: u8) {
            let mut octets = [fill; IDENTIFY_LEN];
            octets[at] = octet;
            let _ = Controller::parse(&octets);
            if let Some(Namespace { blocks, block_shift, .. }) = Namespace::parse(&octets) {
                prop_assert!(blocks.checked_mul(1 << block_shift).is_some());
            }
        }
    }
}

//! Commands of Fabrics: Connect, and the controller's properties (Base, "Fabrics Command Set").

use super::MAX_NQN;
use super::capsule::{Place, Sqe};
use super::octets::{le16, put};
use super::status::Status;

/// The opcode of all commands of Fabrics.
pub const FABRICS: u8 = 0x7f;

/// Octets of the data of a Connect.
pub const CONNECT_LEN: usize = 1024;

/// The controller number by which a host asks for any controller ("dynamic controller model").
pub const ANY_CONTROLLER: u16 = 0xffff;

/// The properties of a controller (Base, "Controller Properties"), by their offsets.
pub mod property {
    /// Controller Capabilities, 8 octets.
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Controller Configuration.
    pub const CC: u32 = 0x14;
    /// Controller Status.
    pub const CSTS: u32 = 0x1c;
}

const PROPERTY_SET: u8 = 0x00;
const CONNECT: u8 = 0x01;
const PROPERTY_GET: u8 = 0x04;

/// A command of Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabrics {
    /// Makes the connection a queue of a controller ("Connect Command").
    Connect(Connect),
    /// Asks for a property ("Property Get Command").
    Get {
        /// The offset.
        offset: u32,
        /// Eight octets are meant, and not four.
        is_wide: bool,
    },
    /// Sets a property ("Property Set Command").
    Set {
        /// The offset.
        offset: u32,
        /// Eight octets are meant, and not four.
        is_wide: bool,
        /// The value.
        value: u64,
    },
}

/// A Connect, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The format of the command, which is 0.
    pub format: u16,
    /// The number of the queue: 0 is the admin queue.
    pub qid: u16,
    /// Commands in the queue, less one.
    pub size: u16,
    /// Time in milliseconds after which a controller of which nothing is heard ends; 0 for none.
    pub keep_alive: u32,
}

impl Fabrics {
    /// Parses a command of Fabrics.
    ///
    /// # Errors
    /// What the host is to be told of one that is not known.
    pub fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let [cdw10, cdw11, cdw12, cdw13, ..] = sqe.cdw;
        let (offset, is_wide) = (cdw11, cdw10 & 1 != 0);
        match (sqe.opcode, sqe.nsid as u8) {
            (FABRICS, CONNECT) => Ok(Fabrics::Connect(Connect {
                format: cdw10 as u16,
                qid: (cdw10 >> 16) as u16,
                size: cdw11 as u16,
                keep_alive: cdw12,
            })),
            (FABRICS, PROPERTY_GET) => Ok(Fabrics::Get { offset, is_wide }),
            (FABRICS, PROPERTY_SET) => {
                let value = u64::from(cdw13) << 32 | u64::from(cdw12);
                Ok(Fabrics::Set { offset, is_wide, value })
            }
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Makes the command, with that number, and data at that place.
    #[must_use]
    pub fn command(&self, cid: u16, place: Place) -> Sqe {
        let (kind, cdw) = match *self {
            Fabrics::Connect(Connect { format, qid, size, keep_alive }) => {
                let cdw10 = u32::from(qid) << 16 | u32::from(format);
                (CONNECT, [cdw10, size.into(), keep_alive, 0, 0, 0])
            }
            Fabrics::Get { offset, is_wide } => (PROPERTY_GET, [is_wide.into(), offset, 0, 0, 0, 0]),
            Fabrics::Set { offset, is_wide, value } => {
                (PROPERTY_SET, [is_wide.into(), offset, value as u32, (value >> 32) as u32, 0, 0])
            }
        };
        Sqe::new(FABRICS, cid, kind.into(), place, cdw)
    }
}

/// The data of a Connect: who asks, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// A number of the host that all its queues have alike.
    pub host_id: [u8; 16],
    /// The controller: [`ANY_CONTROLLER`] on the admin queue.
    pub cntlid: u16,
    /// The subsystem.
    pub subsystem: String,
    /// The host.
    pub host: String,
}

/// Places of a Connect that an answer names as wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An octet of the command.
    Command(u16),
    /// An octet of its data.
    Data(u16),
}

impl Wrong {
    /// The number of the queue.
    pub const QID: Wrong = Wrong::Command(42);
    /// The size of the queue.
    pub const SIZE: Wrong = Wrong::Command(44);
    /// The number of the host.
    pub const HOST_ID: Wrong = Wrong::Data(0);
    /// The number of the controller.
    pub const CNTLID: Wrong = Wrong::Data(CNTLID as u16);
    /// The name of the subsystem.
    pub const SUBSYSTEM: Wrong = Wrong::Data(SUBSYSTEM as u16);
    /// The name of the host.
    pub const HOST: Wrong = Wrong::Data(HOST as u16);

    /// Returns the result of an answer with [`Status::CONNECT_PARAMETERS`].
    #[must_use]
    pub fn result(self) -> u64 {
        match self {
            Wrong::Command(at) => at.into(),
            Wrong::Data(at) => 1 << 16 | u64::from(at),
        }
    }
}

/// Places in the data.
const CNTLID: usize = 16;
const SUBSYSTEM: usize = 256;
const HOST: usize = 512;

/// Octets of a name's field.
const NAME: usize = 256;

impl ConnectData {
    /// Parses the data of a Connect.
    ///
    /// # Errors
    /// The place of a name that is none.
    pub fn parse(octets: &[u8; CONNECT_LEN]) -> Result<Self, Wrong> {
        let mut host_id = [0; 16];
        host_id.copy_from_slice(&octets[..16]);
        Ok(ConnectData {
            host_id,
            cntlid: le16(octets, CNTLID),
            subsystem: name(&octets[SUBSYSTEM..SUBSYSTEM + NAME]).ok_or(Wrong::SUBSYSTEM)?,
            host: name(&octets[HOST..HOST + NAME]).ok_or(Wrong::HOST)?,
        })
    }

    /// Returns the octets. Names of more than [`MAX_NQN`] octets are cut.
    #[must_use]
    pub fn emit(&self) -> [u8; CONNECT_LEN] {
        let mut octets = [0; CONNECT_LEN];
        put(&mut octets, 0, self.host_id);
        put(&mut octets, CNTLID, self.cntlid.to_le_bytes());
        for (at, name) in [(SUBSYSTEM, &self.subsystem), (HOST, &self.host)] {
            let len = name.len().min(MAX_NQN);
            octets[at..at + len].copy_from_slice(&name.as_bytes()[..len]);
        }
        octets
    }
}

/// Returns the name in a field: text that ends with a zero (Base, "NVMe Qualified Names").
fn name(field: &[u8]) -> Option<String> {
    let len = field.iter().position(|octet| *octet == 0)?;
    let text = str::from_utf8(&field[..len]).ok()?;
    (1..=MAX_NQN).contains(&len).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Base, "Connect Command", "Property Set Command".
    #[test]
    fn commands_of_fabrics_are_written_as_the_specification_has_them() {
        let connect = Connect { format: 0, qid: 2, size: 31, keep_alive: 5000 };
        let octets = Fabrics::Connect(connect).command(7, Place::NONE).emit();
        assert_eq!(octets[..5], [0x7f, 0x40, 7, 0, 1]);
        assert_eq!(octets[40..52], [0, 0, 2, 0, 31, 0, 0, 0, 0x88, 0x13, 0, 0]);
        let set = Fabrics::Set { offset: property::CC, is_wide: false, value: 0x0102_0304_0506 };
        let octets = set.command(7, Place::NONE).emit();
        assert_eq!((octets[4], octets[40], octets[44]), (0, 0, 0x14));
        assert_eq!(octets[48..56], [6, 5, 4, 3, 2, 1, 0, 0]);
        let get = Fabrics::Get { offset: property::CAP, is_wide: true };
        assert_eq!(get.command(7, Place::NONE).emit()[40], 1);
        for fabrics in [Fabrics::Connect(connect), set, get] {
            assert_eq!(Fabrics::parse(&fabrics.command(7, Place::NONE)), Ok(fabrics));
        }
        let other = Sqe::new(FABRICS, 0, 5, Place::NONE, [0; 6]);
        assert_eq!(Fabrics::parse(&other), Err(Status::INVALID_OPCODE));
    }

    fn data() -> ConnectData {
        ConnectData { host_id: [9; 16], cntlid: 0x0102, subsystem: "disk".into(), host: "me".into() }
    }

    /// Base, "Connect Command" - Data.
    #[test]
    fn the_data_of_a_connect_are_written_as_the_specification_has_them() {
        let octets = data().emit();
        assert_eq!(octets[..18], [[9; 16].as_slice(), &[2, 1]].concat());
        assert_eq!((&octets[256..261], &octets[512..515]), (&b"disk\0"[..], &b"me\0"[..]));
        assert_eq!(ConnectData::parse(&octets), Ok(data()));
    }

    #[test]
    fn names_that_are_none_are_refused_by_their_place() {
        for (at, wrong) in [(256, 0x1_0100), (512, 0x1_0200)] {
            for octet in [0, b'a', 0xff] {
                let mut octets = data().emit();
                octets[at..at + NAME].fill(octet);
                assert_eq!(ConnectData::parse(&octets).map_err(Wrong::result), Err(wrong));
            }
            let mut octets = data().emit();
            octets[at..at + MAX_NQN].fill(b'a');
            assert!(ConnectData::parse(&octets).is_ok());
            octets[at + MAX_NQN] = b'a';
            assert!(ConnectData::parse(&octets).is_err());
        }
        assert_eq!(Wrong::QID.result(), 42);
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_so_that_it_parses_alike(sqe: [u8; 64], kind in 0u8..8) {
            let mut octets = sqe;
            (octets[0], octets[4]) = (FABRICS, kind);
            let sqe = Sqe::parse(&octets);
            if let Ok(fabrics) = Fabrics::parse(&sqe) {
                prop_assert_eq!(Fabrics::parse(&fabrics.command(1, Place::NONE)), Ok(fabrics));
            }
        }
    }
}

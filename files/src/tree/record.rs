//! Records: the octets of a tree on their way, as docs/files.md has them.
//!
//! A chunk holds whole records, so that neither end has to put one together from pieces. A [`Name`]
//! or a [`Record`] that exists is valid; whether the order of records makes sense is checked by the
//! receiver.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::checksum::Check;
use crate::files::PART;
use crate::protocol::{LARGEST, Time};

const DIR: u8 = 1;
const FILE: u8 = 2;
const DATA: u8 = 3;
const COMPLETE: u8 = 4;
const WITHDRAWN: u8 = 5;
const END: u8 = 6;
const OFFER: u8 = 7;
const ASK: u8 = 8;
const RESUME: u8 = 9;
const SHA256: u8 = 10;
const UNREAD: u8 = 11;
const LEFT_OUT: u8 = 12;
const LINK: u8 = 13;
const TOP: u8 = 14;
const LISTED: u8 = 15;
const ENTRY: u8 = 16;
const CLOSED: u8 = 17;

/// Octets of the longest path that Linux takes (`PATH_MAX`, less the 0 at its end), and of
/// the longest part of one.
const LONGEST_PATH: usize = 4095;
pub(super) const LONGEST_NAME: usize = 255;

/// Octets of the longest record but for the octets of a file.
pub(super) const LONGEST: usize = 1 + 2 + LONGEST_PATH + ATTRIBUTES + 2 + LONGEST_PATH;
/// Octets of the longest name of what is left out: of an entry in a directory whose path can just
/// be sent.
const LONGEST_SHOWN: usize = LONGEST_PATH + 1 + LONGEST_NAME;
/// Octets of a `Data` record around the octets of the file.
pub(super) const AROUND_DATA: usize = 1 + 8 + 4 + 4;
const ATTRIBUTES: usize = 4 + 8 + 4;

/// A relative path that leads nowhere but down. It need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    /// The time of the last change.
    pub(super) modified: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Dir {
        name: Name<'a>,
        attributes: Attributes,
    },
    File {
        name: Name<'a>,
        attributes: Attributes,
        size: u64,
    },
    /// A file that the sender has, and sends if the receiver wants it.
    Offer {
        name: Name<'a>,
        attributes: Attributes,
        size: u64,
    },
    /// The receiver is to say which of the files it wants that were offered since the last time.
    Ask,
    /// A file of which the receiver has the first octets.
    Resume {
        name: Name<'a>,
        attributes: Attributes,
        size: u64,
        from: u64,
    },
    /// The SHA-256 of all octets of the last file.
    Sha256(&'a [u8; 32]),
    /// Octets of the last file. Those before, which no record holds, are a hole.
    Data {
        offset: u64,
        octets: &'a [u8],
    },
    /// The last file is complete.
    Complete,
    /// The last file changed while it was read: the receiver discards it.
    Withdrawn,
    /// A file or directory that could not be read, and the error's number on Linux; 0 if it changed
    /// meanwhile.
    Unread {
        name: Name<'a>,
        errno: u32,
    },
    /// An entry that is not sent, and the number of its kind ([`super::left_out::What`]). Its name
    /// is shown and nothing else, so that it may be longer than a path that can be sent.
    LeftOut {
        name: &'a [u8],
        what: u8,
    },
    /// A symbolic link, and what it leads to.
    Link {
        name: Name<'a>,
        attributes: Attributes,
        target: &'a [u8],
    },
    /// The directory whose contents are sent without its name.
    Top(Attributes),
    /// The names of what the sender has in a directory follow, sorted; without a name, in the
    /// uppermost.
    Listed(Option<Name<'a>>),
    /// A name of it, without those of the directories above.
    Entry(&'a [u8]),
    /// A directory is complete; if it was listed, these were all names.
    Closed {
        name: Option<Name<'a>>,
        attributes: Attributes,
    },
    /// The last record.
    End(Left),
}

/// Counts of what is in the tree and was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Neither file nor directory, or a partial file.
    pub(crate) skipped: u64,
    /// Files and directories that could not be read, or that changed meanwhile.
    pub(crate) failed: u64,
}

/// The reason why octets are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordError {
    Malformed,
    /// The CRC of the octets of a file does not match.
    Crc,
}

impl<'a> Name<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Option<Self> {
        let part = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= LONGEST_NAME;
        let valid = octets.len() <= LONGEST_PATH
            && !octets.contains(&0)
            && !octets.ends_with(PART.as_bytes())
            && octets.split(|octet| *octet == b'/').all(part);
        valid.then_some(Name(octets))
    }

    /// Returns the directory, empty for the uppermost, and the last part.
    pub(super) fn split(self) -> (&'a OsStr, &'a OsStr) {
        let (dir, last) = match self.0.iter().rposition(|octet| *octet == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[][..], self.0),
        };
        (OsStr::from_bytes(dir), OsStr::from_bytes(last))
    }

    pub(super) fn octets(self) -> &'a [u8] {
        self.0
    }

    /// Returns the path of a directory, which has no name if it is the uppermost.
    pub(super) fn octets_of(dir: Option<Self>) -> &'a [u8] {
        dir.map_or(b"", Name::octets)
    }

    pub(super) fn shown(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

impl<'a> Record<'a> {
    /// Returns the first record, and the octets behind it.
    pub(super) fn parse(octets: &'a [u8], check: Check) -> Result<(Self, &'a [u8]), RecordError> {
        let mut fields = Fields(octets);
        let record = match fields.take_u8()? {
            DIR => Record::Dir { name: fields.take_name()?, attributes: fields.take_attributes()? },
            FILE => Record::File {
                name: fields.take_name()?,
                attributes: fields.take_attributes()?,
                size: fields.take_offset()?,
            },
            OFFER => Record::Offer {
                name: fields.take_name()?,
                attributes: fields.take_attributes()?,
                size: fields.take_offset()?,
            },
            ASK => Record::Ask,
            RESUME => fields.take_resume()?,
            SHA256 => Record::Sha256(fields.take_ref()?),
            UNREAD => Record::Unread { name: fields.take_name()?, errno: fields.take_u32()? },
            LEFT_OUT => Record::LeftOut { name: fields.take_shown()?, what: fields.take_u8()? },
            LINK => Record::Link {
                name: fields.take_name()?,
                attributes: fields.take_attributes()?,
                target: fields.take_target()?,
            },
            TOP => Record::Top(fields.take_attributes()?),
            LISTED => Record::Listed(fields.take_dir()?),
            ENTRY => Record::Entry(fields.take_entry()?),
            CLOSED => Record::Closed { name: fields.take_dir()?, attributes: fields.take_attributes()? },
            DATA => fields.take_data(check)?,
            COMPLETE => Record::Complete,
            WITHDRAWN => Record::Withdrawn,
            END => Record::End(Left { skipped: fields.take_u64()?, failed: fields.take_u64()? }),
            _ => return Err(RecordError::Malformed),
        };
        Ok((record, fields.0))
    }

    /// Appends the record to `out`.
    pub(super) fn emit(&self, check: Check, out: &mut Vec<u8>) {
        match *self {
            Record::Dir { name, attributes } => emit_named(DIR, name.0, attributes, out),
            Record::File { name, attributes, size } => {
                emit_named(FILE, name.0, attributes, out);
                out.extend(size.to_be_bytes());
            }
            Record::Data { offset, octets } => {
                out.extend(data_head(offset, octets.len(), crc(octets, check)));
                out.extend(octets);
            }
            Record::Offer { name, attributes, size } => {
                emit_named(OFFER, name.0, attributes, out);
                out.extend(size.to_be_bytes());
            }
            Record::Ask => out.push(ASK),
            Record::Resume { name, attributes, size, from } => {
                emit_named(RESUME, name.0, attributes, out);
                out.extend(size.to_be_bytes());
                out.extend(from.to_be_bytes());
            }
            Record::Sha256(digest) => {
                out.push(SHA256);
                out.extend(digest);
            }
            Record::Unread { name, errno } => {
                out.push(UNREAD);
                emit_octets(name.0, out);
                out.extend(errno.to_be_bytes());
            }
            Record::LeftOut { name, what } => {
                out.push(LEFT_OUT);
                emit_octets(name, out);
                out.push(what);
            }
            Record::Link { name, attributes, target } => {
                emit_named(LINK, name.0, attributes, out);
                emit_octets(target, out);
            }
            Record::Top(attributes) => {
                out.push(TOP);
                attributes.emit(out);
            }
            Record::Listed(name) => {
                out.push(LISTED);
                emit_octets(Name::octets_of(name), out);
            }
            Record::Entry(name) => {
                out.push(ENTRY);
                emit_octets(name, out);
            }
            Record::Closed { name, attributes } => {
                emit_named(CLOSED, Name::octets_of(name), attributes, out);
            }
            Record::Complete => out.push(COMPLETE),
            Record::Withdrawn => out.push(WITHDRAWN),
            Record::End(Left { skipped, failed }) => {
                out.push(END);
                out.extend(skipped.to_be_bytes());
                out.extend(failed.to_be_bytes());
            }
        }
    }
}

fn emit_octets(octets: &[u8], out: &mut Vec<u8>) {
    out.extend((octets.len() as u16).to_be_bytes());
    out.extend(octets);
}

fn emit_named(kind: u8, name: &[u8], attributes: Attributes, out: &mut Vec<u8>) {
    out.push(kind);
    emit_octets(name, out);
    attributes.emit(out);
}

impl Attributes {
    fn emit(self, out: &mut Vec<u8>) {
        out.extend(self.mode.to_be_bytes());
        out.extend(self.modified.seconds.to_be_bytes());
        out.extend(self.modified.nanos.to_be_bytes());
    }
}

/// Returns the beginning of a record of a file's octets, which stand behind it.
pub(super) fn data_head(offset: u64, len: usize, crc: u32) -> [u8; AROUND_DATA] {
    let mut head = [DATA; AROUND_DATA];
    head[1..9].copy_from_slice(&offset.to_be_bytes());
    head[9..13].copy_from_slice(&(len as u32).to_be_bytes());
    head[13..].copy_from_slice(&crc.to_be_bytes());
    head
}

/// Returns the field for the CRC: 0 where nothing is checked.
fn crc(octets: &[u8], check: Check) -> u32 {
    if check == Check::None { 0 } else { crc_fast::crc32_iscsi(octets) }
}

/// The octets that have not been parsed yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (field, rest) = self.0.split_at_checked(len).ok_or(RecordError::Malformed)?;
        self.0 = rest;
        Ok(field)
    }

    fn take_ref<const N: usize>(&mut self) -> Result<&'a [u8; N], RecordError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(RecordError::Malformed)?;
        self.0 = rest;
        Ok(field)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take_ref().copied()
    }

    fn take_u8(&mut self) -> Result<u8, RecordError> {
        self.take_array().map(u8::from_be_bytes)
    }

    fn take_u32(&mut self) -> Result<u32, RecordError> {
        self.take_array().map(u32::from_be_bytes)
    }

    fn take_u64(&mut self) -> Result<u64, RecordError> {
        self.take_array().map(u64::from_be_bytes)
    }

    /// Returns a size or an offset, which an `off_t` can hold.
    fn take_offset(&mut self) -> Result<u64, RecordError> {
        self.take_u64().and_then(|size| if size > LARGEST { Err(RecordError::Malformed) } else { Ok(size) })
    }

    fn take_shown(&mut self) -> Result<&'a [u8], RecordError> {
        match self.take_array().map(u16::from_be_bytes)?.into() {
            len if len <= LONGEST_SHOWN => self.take(len),
            _ => Err(RecordError::Malformed),
        }
    }

    fn take_name(&mut self) -> Result<Name<'a>, RecordError> {
        let len = self.take_array().map(u16::from_be_bytes)?;
        Name::new(self.take(len.into())?).ok_or(RecordError::Malformed)
    }

    fn take_dir(&mut self) -> Result<Option<Name<'a>>, RecordError> {
        match self.0 {
            [0, 0, rest @ ..] => {
                self.0 = rest;
                Ok(None)
            }
            _ => self.take_name().map(Some),
        }
    }

    /// Returns the name of an entry of a directory. It may be one that is not sent.
    fn take_entry(&mut self) -> Result<&'a [u8], RecordError> {
        match self.take_array().map(u16::from_be_bytes)?.into() {
            len if (1..=LONGEST_NAME).contains(&len) => self.take(len),
            _ => Err(RecordError::Malformed),
        }
    }

    /// Returns what a link leads to, of which nothing is followed.
    fn take_target(&mut self) -> Result<&'a [u8], RecordError> {
        let len = self.take_array().map(u16::from_be_bytes)?.into();
        let target = self.take(len)?;
        let is_valid = (1..=LONGEST_PATH).contains(&len) && !target.contains(&0);
        if is_valid { Ok(target) } else { Err(RecordError::Malformed) }
    }

    fn take_attributes(&mut self) -> Result<Attributes, RecordError> {
        let (mode, seconds) = (self.take_u32()?, self.take_array().map(i64::from_be_bytes)?);
        let modified = Time { seconds, nanos: self.take_u32()? };
        if modified.is_valid() { Ok(Attributes { mode, modified }) } else { Err(RecordError::Malformed) }
    }

    fn take_resume(&mut self) -> Result<Record<'a>, RecordError> {
        let (name, attributes) = (self.take_name()?, self.take_attributes()?);
        let (size, from) = (self.take_offset()?, self.take_offset()?);
        if from > size {
            return Err(RecordError::Malformed);
        }
        Ok(Record::Resume { name, attributes, size, from })
    }

    fn take_data(&mut self, check: Check) -> Result<Record<'a>, RecordError> {
        let (offset, len, want) = (self.take_offset()?, self.take_u32()?, self.take_u32()?);
        let octets = self.take(len as usize)?;
        if octets.is_empty() {
            return Err(RecordError::Malformed);
        }
        if check != Check::None && crc(octets, check) != want {
            return Err(RecordError::Crc);
        }
        Ok(Record::Data { offset, octets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Time = Time { seconds: -1, nanos: 999_999_999 };
    const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: TIME };
    const CHECK: Check = Check::Crc32c;

    fn records() -> [Record<'static>; 18] {
        let name = Name::new(b"a/\xff b").unwrap();
        [
            Record::Dir { name, attributes: ATTRIBUTES },
            Record::File { name, attributes: ATTRIBUTES, size: i64::MAX as u64 },
            Record::Data { offset: 3 << 30, octets: b"octets" },
            Record::Complete,
            Record::Withdrawn,
            Record::End(Left { skipped: 1, failed: 2 }),
            Record::Offer { name, attributes: ATTRIBUTES, size: 0 },
            Record::Ask,
            Record::Resume { name, attributes: ATTRIBUTES, size: 7, from: 7 },
            Record::Sha256(&[7; 32]),
            Record::Unread { name, errno: 13 },
            Record::LeftOut { name: b"../link", what: 1 },
            Record::Link { name, attributes: ATTRIBUTES, target: b"../a" },
            Record::Top(ATTRIBUTES),
            Record::Listed(Some(name)),
            Record::Listed(None),
            Record::Entry(b"half.rddp.part"),
            Record::Closed { name: None, attributes: ATTRIBUTES },
        ]
    }

    #[test]
    fn records_come_back_as_they_went_and_no_part_of_one_passes() {
        for record in records() {
            let mut octets = Vec::new();
            record.emit(CHECK, &mut octets);
            for len in 0..octets.len() {
                assert!(Record::parse(&octets[..len], CHECK).is_err(), "{record:?}: {len}");
            }
            octets.push(7);
            assert_eq!(Record::parse(&octets, CHECK), Ok((record, &[7][..])));
        }
    }

    #[test]
    fn octets_that_changed_on_their_way_are_told() {
        let mut octets = Vec::new();
        Record::Data { offset: 0, octets: b"octets" }.emit(CHECK, &mut octets);
        *octets.last_mut().unwrap() ^= 1;
        assert_eq!(Record::parse(&octets, CHECK), Err(RecordError::Crc));
        assert_eq!(Record::parse(&octets, Check::Sha256), Err(RecordError::Crc));
        assert!(Record::parse(&octets, Check::None).is_ok());
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        let name = Name::new(b"a").unwrap();
        let nanos = Attributes { modified: Time { nanos: 1_000_000_000, ..TIME }, ..ATTRIBUTES };
        for record in [
            Record::Dir { name, attributes: nanos },
            Record::File { name, attributes: ATTRIBUTES, size: 1 << 63 },
            Record::Resume { name, attributes: ATTRIBUTES, size: 7, from: 8 },
            Record::Data { offset: 1 << 63, octets: b"x" },
            Record::Data { offset: 0, octets: b"" },
            Record::Link { name, attributes: ATTRIBUTES, target: b"" },
            Record::Link { name, attributes: ATTRIBUTES, target: b"a\0" },
            Record::Link { name, attributes: ATTRIBUTES, target: &[b'x'; 4096] },
            Record::Entry(b""),
            Record::Entry(&[b'x'; 256]),
        ] {
            let mut octets = Vec::new();
            record.emit(CHECK, &mut octets);
            assert_eq!(Record::parse(&octets, CHECK), Err(RecordError::Malformed), "{record:?}");
        }
        assert_eq!(Record::parse(&[18], CHECK), Err(RecordError::Malformed));
    }

    #[test]
    fn names_lead_nowhere_but_down() {
        let long = [b'x'; 256];
        for bad in [
            &b""[..],
            b"/",
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"../a",
            b"a/..",
            b"a/../b",
            b"./a",
            b"a\0",
            b"a.rddp.part",
            &long,
            &b"a/".repeat(2047)[..],
            &[b'x', b'/'].repeat(2049)[1..],
        ] {
            assert_eq!(Name::new(bad), None, "{bad:?}");
        }
        for good in [&b"a"[..], b"...", b"a/b.c", b"\xff/\n", b"-"] {
            assert!(Name::new(good).is_some(), "{good:?}");
        }
        assert_eq!(Name::new(b"a/b/c").unwrap().split(), (OsStr::new("a/b"), OsStr::new("c")));
        assert_eq!(Name::new(b"c").unwrap().split(), (OsStr::new(""), OsStr::new("c")));
    }

    /// A record that is accepted is emitted as it came.
    #[test]
    fn octets_of_anybody_are_records_or_errors() {
        for seed in 0..20_000 {
            let noise = rddp_test_support::random_octets(seed, 64);
            let mut octets = Vec::new();
            records()[seed as usize % records().len()].emit(CHECK, &mut octets);
            let at = usize::from(noise[0]) % octets.len();
            octets[at] ^= noise[1];
            if noise[2] < 64 {
                octets = noise;
                octets[0] %= 13;
            }
            if let Ok((record, rest)) = Record::parse(&octets, CHECK) {
                let mut again = Vec::new();
                record.emit(CHECK, &mut again);
                assert_eq!([&again[..], rest].concat(), octets);
            }
        }
    }
}

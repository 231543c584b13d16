//! The agreement before requests ("Fixed newstyle negotiation"): the client's end.
//!
//! A machine: the client reads [`Opening::wanted`] octets, hands them to [`Opening::take`], sends
//! what that has written, and so on. It asks for structured replies, for `base:allocation`, and for
//! the export by `NBD_OPT_GO`, and goes on with less where the server lacks them.

mod described;
mod failed;

pub use self::described::{Described, Listed};
use self::described::{NO_SIZES, sizes_of};
pub use self::failed::{Failed, Said};
use super::super::Terms;
use super::super::options::*;

/// The magic number of servers before newstyle.
const OLDSTYLE_MAGIC: &[u8; 8] = b"\0\0\x42\x02\x81\x86\x12\x53";

const GREETING_LEN: usize = 18;
const REPLY_LEN: usize = 20;

/// Octets behind `NBD_OPT_EXPORT_NAME`, and of the zeroes behind those.
const SIZE_AND_FLAGS: usize = 10;
const ZEROES: usize = 124;

/// Replies to one option: more come from no server that means well.
const MOST_REPLIES: usize = 10_000;

/// Octets of the longest name or other string ("Values").
pub const LONGEST_NAME: usize = 4096;

const REP_ERR_POLICY: u32 = 1 << 31 | 2;
const REP_ERR_TLS_REQD: u32 = 1 << 31 | 5;
const REP_ERR_SHUTDOWN: u32 = 1 << 31 | 7;

/// The handshake of one connection.
#[derive(Debug)]
pub struct Opening {
    wish: Wish,
    stage: Stage,
    /// The option that was sent last.
    option: u32,
    replies: usize,
    zeroes: bool,
    structured: bool,
    allocation: Option<u32>,
    described: Option<Described>,
    /// The least and the most octets of a request.
    sizes: (u32, u32),
    /// Exports that a list has named, and the one that is asked about now.
    listed: Vec<Listed>,
    asked: usize,
}

#[derive(Debug)]
enum Wish {
    Transmit(String),
    List,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Greeting,
    Reply,
    Data {
        kind: u32,
        len: u32,
    },
    /// The reply to `NBD_OPT_EXPORT_NAME`.
    Old,
}

/// An export that is open, and the terms of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The export.
    pub described: Described,
    /// The form in which requests are answered.
    pub terms: Terms,
    /// The number that `base:allocation` has in replies.
    pub(super) allocation_id: u32,
}

/// The way on behind some octets of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The handshake goes on.
    More,
    /// Requests may follow.
    Transmit(Open),
    /// All exports; the connection ends.
    Listed(Vec<Listed>),
}

impl Opening {
    /// Begins a handshake for an export. An empty name asks for the server's own choice. A name of
    /// more than [`LONGEST_NAME`] octets is cut, which no server has.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let mut name = name.to_owned();
        while name.len() > LONGEST_NAME {
            name.pop();
        }
        Self::new(Wish::Transmit(name))
    }

    /// Begins a handshake that asks for all exports.
    #[must_use]
    pub fn for_list() -> Self {
        Self::new(Wish::List)
    }

    fn new(wish: Wish) -> Self {
        Opening {
            wish,
            stage: Stage::Greeting,
            option: 0,
            replies: 0,
            zeroes: false,
            structured: false,
            allocation: None,
            described: None,
            sizes: NO_SIZES,
            listed: Vec::new(),
            asked: 0,
        }
    }

    /// Returns how many octets [`take`](Self::take) takes next, which are never none.
    #[must_use]
    pub fn wanted(&self) -> usize {
        match self.stage {
            Stage::Greeting => GREETING_LEN,
            Stage::Reply => REPLY_LEN,
            Stage::Data { len, .. } => len as usize,
            Stage::Old => SIZE_AND_FLAGS + if self.zeroes { ZEROES } else { 0 },
        }
    }

    /// Takes the octets that were wanted, and writes behind `out` what is to be sent.
    ///
    /// # Errors
    /// There is no export to be had; the connection has to end.
    pub fn take(&mut self, octets: &[u8], out: &mut Vec<u8>) -> Result<Next, Failed> {
        match self.stage {
            Stage::Greeting => self.greet(octets, out),
            Stage::Reply => {
                let (kind, len) = self.header(octets)?;
                if len > 0 {
                    self.stage = Stage::Data { kind, len };
                    return Ok(Next::More);
                }
                self.reply(kind, &[], out)
            }
            Stage::Data { kind, .. } => {
                self.stage = Stage::Reply;
                self.reply(kind, octets, out)
            }
            Stage::Old => {
                let size = octets.first_chunk().map(|size| u64::from_be_bytes(*size));
                let flags = octets.get(8..).and_then(be16);
                let (size, flags) = size.zip(flags).ok_or(Failed::Nonsense("the size of an export"))?;
                Ok(self.open(Described::new(size, flags)?))
            }
        }
    }

    fn greet(&mut self, octets: &[u8], out: &mut Vec<u8>) -> Result<Next, Failed> {
        let rest = octets.strip_prefix(NBD_MAGIC).ok_or(Failed::NoServer)?;
        if rest.starts_with(OLDSTYLE_MAGIC) {
            return Err(Failed::Oldstyle);
        }
        let flags = rest.strip_prefix(OPTION_MAGIC).and_then(be16).ok_or(Failed::NoServer)?;
        let known = flags & (FIXED_NEWSTYLE | NO_ZEROES);
        self.zeroes = known & NO_ZEROES == 0;
        out.extend(u32::from(known).to_be_bytes());
        let is_fixed = known & FIXED_NEWSTYLE != 0;
        match &self.wish {
            // Other options are for servers that answer what they do not know.
            Wish::Transmit(name) if !is_fixed => {
                let name = name.clone();
                self.stage = Stage::Old;
                self.send(OPT_EXPORT_NAME, name.as_bytes(), out);
            }
            Wish::List if !is_fixed => return Err(Failed::NoList(Said::default())),
            Wish::Transmit(_) => self.ask(OPT_STRUCTURED_REPLY, &[], out),
            Wish::List => self.ask(OPT_LIST, &[], out),
        }
        Ok(Next::More)
    }

    /// Sends an option that has replies.
    fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        self.stage = Stage::Reply;
        self.send(option, data, out);
    }

    fn send(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        (self.option, self.replies) = (option, 0);
        out.extend(OPTION_MAGIC);
        out.extend(option.to_be_bytes());
        out.extend(with_len(data));
    }

    /// Parses the header of a reply. Returns its kind and the length of its data.
    fn header(&mut self, octets: &[u8]) -> Result<(u32, u32), Failed> {
        let rest = octets.strip_prefix(&REPLY_MAGIC.to_be_bytes());
        let word = |at: usize| rest.and_then(|rest| be32(rest.get(at..)?));
        let (Some(option), Some(kind), Some(len)) = (word(0), word(4), word(8)) else {
            return Err(Failed::Nonsense("what should be a reply to an option is none"));
        };
        self.replies += 1;
        if option != self.option {
            return Err(Failed::Nonsense("a reply to an option that was not sent"));
        }
        if len > MAX_OPTION || self.replies > MOST_REPLIES {
            return Err(Failed::Nonsense("a reply to an option that is too long"));
        }
        Ok((kind, len))
    }

    fn reply(&mut self, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Next, Failed> {
        let failed = kind & 1 << 31 != 0;
        match (self.option, kind) {
            (OPT_STRUCTURED_REPLY, _) if failed || kind == REP_ACK => {
                self.structured = kind == REP_ACK;
                self.ask_for_context(out);
            }
            (OPT_SET_META_CONTEXT, REP_META_CONTEXT) => {
                if data.get(4..) == Some(ALLOCATION) {
                    self.allocation = be32(data);
                }
            }
            (OPT_SET_META_CONTEXT, _) if failed || kind == REP_ACK => {
                if failed {
                    self.allocation = None;
                }
                self.ask_for_export(OPT_GO, out);
            }
            (OPT_GO | OPT_INFO, REP_INFO) => self.info(data)?,
            (OPT_GO, REP_ACK) => {
                let described = self.described.ok_or(Failed::Nonsense("an export without a size"))?;
                return Ok(self.open(described));
            }
            (OPT_GO, REP_ERR_UNSUP) => {
                self.stage = Stage::Old;
                let name = self.name().as_bytes().to_vec();
                self.send(OPT_EXPORT_NAME, &name, out);
            }
            (OPT_LIST, REP_SERVER) => {
                let name = name_and_rest(data).filter(|(name, _)| name.len() <= LONGEST_NAME);
                let (name, rest) = name.ok_or(Failed::Nonsense("the name of an export"))?;
                let name = String::from_utf8_lossy(name).into_owned();
                self.listed.push(Listed { name, description: description(rest)?, described: None });
            }
            (OPT_LIST, REP_ACK) => return Ok(self.describe_next(out)),
            (OPT_LIST, _) if failed => return Err(Failed::NoList(Said::of(data))),
            (OPT_INFO, _) if failed || kind == REP_ACK => {
                let described = self.described.filter(|_| !failed).map(|described| self.sized(described));
                if let Some(listed) = self.listed.get_mut(self.asked) {
                    listed.described = described;
                }
                self.asked += 1;
                return Ok(self.describe_next(out));
            }
            (OPT_GO, REP_ERR_UNKNOWN) => return Err(Failed::Unknown(Said::of(data))),
            (_, REP_ERR_TLS_REQD) => return Err(Failed::WantsTls(Said::of(data))),
            (OPT_GO, REP_ERR_POLICY | REP_ERR_SHUTDOWN) => return Err(Failed::Refused(Said::of(data))),
            _ if failed => return Err(Failed::Refused(Said::of(data))),
            _ => return Err(Failed::Nonsense("a reply of an unknown kind")),
        }
        Ok(Next::More)
    }

    /// Returns the export that is asked for now.
    fn name(&self) -> &str {
        match &self.wish {
            Wish::Transmit(name) => name,
            Wish::List => self.listed.get(self.asked).map_or("", |listed| &listed.name),
        }
    }

    fn ask_for_context(&mut self, out: &mut Vec<u8>) {
        if !self.structured {
            return self.ask_for_export(OPT_GO, out);
        }
        let mut data = with_len(self.name().as_bytes());
        data.extend(1u32.to_be_bytes());
        data.extend(with_len(ALLOCATION));
        self.ask(OPT_SET_META_CONTEXT, &data, out);
    }

    fn ask_for_export(&mut self, option: u32, out: &mut Vec<u8>) {
        (self.described, self.sizes) = (None, NO_SIZES);
        // Who asks for the sizes keeps to them; a server may want that.
        let infos: &[u16] = match option {
            OPT_INFO => &[INFO_BLOCK_SIZE, INFO_DESCRIPTION],
            _ => &[INFO_BLOCK_SIZE],
        };
        let mut data = with_len(self.name().as_bytes());
        data.extend((infos.len() as u16).to_be_bytes());
        infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
        self.ask(option, &data, out);
    }

    fn info(&mut self, data: &[u8]) -> Result<(), Failed> {
        let kind = be16(data).ok_or(Failed::Nonsense("an information without a kind"))?;
        match (kind, &data[2..]) {
            (INFO_EXPORT, [size @ .., high, low]) if size.len() == 8 => {
                let (size, flags) =
                    (size.iter().fold(0, |all, octet| all << 8 | u64::from(*octet)), [*high, *low]);
                self.described = Some(Described::new(size, u16::from_be_bytes(flags))?);
            }
            (INFO_BLOCK_SIZE, sizes) if data.len() == 14 => self.sizes = sizes_of(sizes)?,
            (INFO_DESCRIPTION, text) => {
                let text = description(text)?;
                if let Some(listed) = self.listed.get_mut(self.asked) {
                    listed.description = text;
                }
            }
            (INFO_EXPORT | INFO_BLOCK_SIZE, _) => {
                return Err(Failed::Nonsense("an information of another length"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks about the next export of a list, or ends.
    fn describe_next(&mut self, out: &mut Vec<u8>) -> Next {
        if self.asked < self.listed.len() {
            self.ask_for_export(OPT_INFO, out);
            return Next::More;
        }
        self.send(OPT_ABORT, &[], out);
        Next::Listed(std::mem::take(&mut self.listed))
    }

    fn sized(&self, mut described: Described) -> Described {
        (described.minimum, described.maximum) = self.sizes;
        described
    }

    fn open(&self, described: Described) -> Next {
        let allocation = self.structured && self.allocation.is_some();
        Next::Transmit(Open {
            described: self.sized(described),
            terms: Terms { structured: self.structured, allocation },
            allocation_id: self.allocation.unwrap_or(0),
        })
    }
}

/// Returns the description of an export.
fn description(text: &[u8]) -> Result<String, Failed> {
    if text.len() > LONGEST_NAME {
        return Err(Failed::Nonsense("a description that is too long"));
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests;

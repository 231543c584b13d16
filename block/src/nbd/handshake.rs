//! The agreement before requests ("Fixed newstyle negotiation"): the server's end.
//!
//! A machine: the server sends [`Handshake::greeting`], reads [`Handshake::wanted`] octets, hands
//! them to [`Handshake::take`], sends what that has written, and so on.

use super::options::*;
use super::{ALLOCATION_ID, MAX_PAYLOAD, Terms};
use crate::export::Export;

/// Octets of a client's flags, and of an option's header.
const FLAGS_LEN: usize = 4;
const OPTION_LEN: usize = 16;

/// Octets of a request at which the server is fastest, named as the preferred ones.
const PREFERRED: u32 = 4096;

/// The handshake of one connection.
#[derive(Debug, Default)]
pub struct Handshake {
    stage: Stage,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was asked.
    allocation_of: Option<String>,
    /// The name of an export that was asked for, and that there is not.
    unknown: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Flags,
    Option,
    Data {
        option: u32,
        len: u32,
    },
}

/// The way on behind some octets of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The handshake goes on.
    More,
    /// Requests follow, for the export with this number in the list.
    Transmit(usize, Terms),
    /// The client has ended it.
    Abort,
}

/// The connection has to end: what the client says makes no sense, or has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The flags, or the first octets of an option, are those of no client.
    #[error("no NBD client: it does not speak fixed newstyle")]
    NoClient,
    /// An option is longer than any that this server knows.
    #[error("an option of {0} octets")]
    LongOption(u32),
    /// There is no such export, and the client asks in a way that has no reply for that.
    #[error("no export is called {0:?}")]
    Unknown(String),
}

impl Handshake {
    /// Returns what the server sends first.
    #[must_use]
    pub fn greeting() -> Vec<u8> {
        [&NBD_MAGIC[..], OPTION_MAGIC, &(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()].concat()
    }

    /// Returns how many octets [`take`](Self::take) takes next, which are never none.
    #[must_use]
    pub fn wanted(&self) -> usize {
        match self.stage {
            Stage::Flags => FLAGS_LEN,
            Stage::Option => OPTION_LEN,
            Stage::Data { len, .. } => len as usize,
        }
    }

    /// Returns the name that was asked for since the last call, and that no export has: the client
    /// is told, and may ask for another.
    pub fn unknown(&mut self) -> Option<String> {
        self.unknown.take()
    }

    /// Takes the octets that were wanted, and writes the reply behind `out`.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn take(&mut self, octets: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Result<Next, Refused> {
        match self.stage {
            Stage::Flags => {
                let flags = be32(octets).filter(|flags| flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) == 0);
                let flags = flags.ok_or(Refused::NoClient)?;
                self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
                self.stage = Stage::Option;
                Ok(Next::More)
            }
            Stage::Option => {
                let rest = octets.strip_prefix(OPTION_MAGIC).ok_or(Refused::NoClient)?;
                let (option, len) = be32(rest).zip(rest.get(4..).and_then(be32)).ok_or(Refused::NoClient)?;
                if len > MAX_OPTION {
                    return Err(Refused::LongOption(len));
                }
                if len > 0 {
                    self.stage = Stage::Data { option, len };
                    return Ok(Next::More);
                }
                self.option(option, &[], exports, out)
            }
            Stage::Data { option, .. } => {
                self.stage = Stage::Option;
                self.option(option, octets, exports, out)
            }
        }
    }

    /// Answers an option.
    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Next, Refused> {
        let mut reply = Reply { option, out };
        match option {
            OPT_EXPORT_NAME => return self.export_name(data, exports, out),
            OPT_ABORT => {
                reply.push(REP_ACK, &[]);
                return Ok(Next::Abort);
            }
            OPT_LIST if data.is_empty() => {
                for export in exports {
                    reply.push(REP_SERVER, &with_len(export.name.as_bytes()));
                }
                reply.push(REP_ACK, &[]);
            }
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply.push(REP_ACK, &[]);
            }
            OPT_INFO | OPT_GO => return Ok(self.info(&mut reply, data, exports)),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.contexts(&mut reply, data, exports),
            OPT_LIST | OPT_STRUCTURED_REPLY => reply.push(REP_ERR_INVALID, &[]),
            _ => reply.push(REP_ERR_UNSUP, &[]),
        }
        Ok(Next::More)
    }

    /// `NBD_OPT_EXPORT_NAME`: requests follow at once, and an error cannot be told.
    fn export_name(&self, name: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Result<Next, Refused> {
        let at = find(name, exports)
            .ok_or_else(|| Refused::Unknown(String::from_utf8_lossy(name).into_owned()))?;
        out.extend(exports[at].size.to_be_bytes());
        out.extend(self.flags(&exports[at]).to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Ok(Next::Transmit(at, self.terms(&exports[at])))
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`: what an export is; with the latter, requests follow.
    fn info(&mut self, reply: &mut Reply<'_>, data: &[u8], exports: &[Export]) -> Next {
        let Some((name, asked)) = name_and_rest(data).filter(|(_, rest)| is_list_of_infos(rest)) else {
            reply.push(REP_ERR_INVALID, &[]);
            return Next::More;
        };
        let Some(at) = find(name, exports) else {
            self.unknown = Some(String::from_utf8_lossy(name).into_owned());
            reply.push(REP_ERR_UNKNOWN, &[]);
            return Next::More;
        };
        let export = &exports[at];
        let mut info = INFO_EXPORT.to_be_bytes().to_vec();
        info.extend(export.size.to_be_bytes());
        info.extend(self.flags(export).to_be_bytes());
        reply.push(REP_INFO, &info);
        // Sizes are told whether they were asked for or not: who asks not may go by others.
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [1, PREFERRED, MAX_PAYLOAD] {
            sizes.extend(size.to_be_bytes());
        }
        reply.push(REP_INFO, &sizes);
        if asked[2..].chunks(2).any(|kind| kind == INFO_NAME.to_be_bytes()) {
            reply.push(REP_INFO, &[&INFO_NAME.to_be_bytes(), export.name.as_bytes()].concat());
        }
        reply.push(REP_ACK, &[]);
        if reply.option == OPT_GO { Next::Transmit(at, self.terms(export)) } else { Next::More }
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`: there is `base:allocation`.
    fn contexts(&mut self, reply: &mut Reply<'_>, data: &[u8], exports: &[Export]) {
        let sets = reply.option == OPT_SET_META_CONTEXT;
        let parsed = name_and_rest(data).and_then(|(name, rest)| Some((name, queries(rest)?)));
        let (Some((name, queries)), true) = (parsed, self.structured) else {
            reply.push(REP_ERR_INVALID, &[]);
            return;
        };
        // What was set before is undone, whatever comes of this.
        if sets {
            self.allocation_of = None;
        }
        let Some(at) = find(name, exports) else {
            reply.push(REP_ERR_UNKNOWN, &[]);
            return;
        };
        let wanted = match sets {
            true => queries.contains(&ALLOCATION),
            false => queries.is_empty() || queries.iter().any(|query| [ALLOCATION, b"base:"].contains(query)),
        };
        if wanted {
            let id = if sets { ALLOCATION_ID } else { 0 };
            reply.push(REP_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION].concat());
            if sets {
                self.allocation_of = Some(exports[at].name.clone());
            }
        }
        reply.push(REP_ACK, &[]);
    }

    /// Returns the transmission flags of an export.
    fn flags(&self, export: &Export) -> u16 {
        let writes = if export.writable { SEND_TRIM | SEND_WRITE_ZEROES } else { READ_ONLY };
        let whole = if self.structured { SEND_DF } else { 0 };
        // A flush and its promise hold for all connections.
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | writes | whole
    }

    fn terms(&self, export: &Export) -> Terms {
        let allocation = self.allocation_of.as_ref() == Some(&export.name);
        Terms { structured: self.structured, allocation }
    }
}

/// Replies to one option.
struct Reply<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl Reply<'_> {
    fn push(&mut self, kind: u32, data: &[u8]) {
        self.out.extend(REPLY_MAGIC.to_be_bytes());
        self.out.extend(self.option.to_be_bytes());
        self.out.extend(kind.to_be_bytes());
        self.out.extend(with_len(data));
    }
}

/// Finds an export: an empty name is that of the first.
fn find(name: &[u8], exports: &[Export]) -> Option<usize> {
    let by_name = exports.iter().position(|export| export.name.as_bytes() == name);
    by_name.or((name.is_empty() && !exports.is_empty()).then_some(0))
}

/// Returns whether these are a number of 16 bits and as many more.
fn is_list_of_infos(rest: &[u8]) -> bool {
    let count = be16(rest).map(usize::from);
    count.is_some_and(|count| rest.len() == 2 + 2 * count)
}

/// Parses a number of 32 bits and as many strings.
fn queries(rest: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = (be32(rest)?, rest.get(4..)?);
    let mut queries = Vec::new();
    for _ in 0..count {
        let (query, behind) = name_and_rest(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some(queries)
}

#[cfg(test)]
mod tests;

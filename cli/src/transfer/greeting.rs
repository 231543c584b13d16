//! Greetings: the private data of MPA's Request and Reply, which names the protocol and its flags.
//!
//! | | Request | Reply |
//! |---|---|---|
//! | protocol 1 | `rddp-files 1` | nothing |
//! | protocol 2 | `rddp-files 2`, flags | `rddp-files 2`, flags, with flag 1 a nonce of 32 octets |
//!
//! The client's flags, one octet, say what it can do. The server's flags are those of them that the
//! server knows and will use, too. Octets behind the flags are ignored at either end. So protocol 2
//! can be extended.
//!
//! | flag | meaning |
//! |---|---|
//! | 1 | each request comes with a proof that the client has the token |
//! | 2 | FPDUs may be longer than TCP's segments, both ways (against RFC 5044 §4.5) |
//! | 4 | the request may be about a tree (`PutTree`, `GetTree`) |
//! | 8 | a choice of checksums, holes, times, offers of files, and files of unknown size |
//! | 16 | of trees: long paths, names of what is left out, and files that the receiver keeps |

use super::protocol::out_of_step;
use super::token::Nonce;
use crate::failure::Failure;

/// The greeting of protocol 1.
pub(super) const ONE: &[u8] = b"rddp-files 1";

const TWO: &[u8] = b"rddp-files 2";

const TOKEN: u8 = 1;
const LARGE: u8 = 2;
const TREES: u8 = 4;
const OFFERS: u8 = 8;
const DETAILS: u8 = 16;

/// A client's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    One,
    Two(Flags),
}

/// Abilities of one end, or those that both have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) token: bool,
    pub(super) large: bool,
    pub(super) trees: bool,
    pub(super) offers: bool,
    pub(super) details: bool,
}

/// The outcome of the greetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) protocol: u8,
    pub(super) flags: Flags,
    pub(super) nonce: Option<Nonce>,
}

impl Flags {
    /// The abilities of this program, with a token or without, and without large FPDUs.
    pub(super) fn all(token: bool) -> Self {
        Flags { token, large: false, trees: true, offers: true, details: true }
    }

    fn parse(octet: u8) -> Self {
        let has = |flag| octet & flag != 0;
        Flags {
            token: has(TOKEN),
            large: has(LARGE),
            trees: has(TREES),
            offers: has(OFFERS),
            details: has(DETAILS),
        }
    }

    fn emit(self) -> u8 {
        let flags = [
            (self.token, TOKEN),
            (self.large, LARGE),
            (self.trees, TREES),
            (self.offers, OFFERS),
            (self.details, DETAILS),
        ];
        flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
    }
}

impl Hello {
    pub(super) fn parse(octets: &[u8]) -> Option<Self> {
        if octets == ONE {
            return Some(Hello::One);
        }
        let flags = octets.strip_prefix(TWO)?.first()?;
        Some(Hello::Two(Flags::parse(*flags)))
    }

    pub(super) fn emit(self) -> Vec<u8> {
        match self {
            Hello::One => ONE.to_vec(),
            Hello::Two(flags) => [TWO, &[flags.emit()]].concat(),
        }
    }

    /// Returns the private data of the server's Reply to this greeting.
    pub(super) fn answer(self, nonce: Option<&Nonce>) -> Vec<u8> {
        let Hello::Two(flags) = self else { return Vec::new() };
        let flags = Flags { token: nonce.is_some(), ..flags };
        [TWO, &[flags.emit()], nonce.map_or(&[], |nonce| nonce)].concat()
    }

    /// Returns what the server's Reply agrees to.
    pub(super) fn agreed(self, answer: &[u8]) -> Result<Agreed, Failure> {
        let Hello::Two(asked) = self else {
            return Ok(Agreed { protocol: 1, flags: Flags::default(), nonce: None });
        };
        let (octet, rest) = answer.strip_prefix(TWO).and_then(<[u8]>::split_first).ok_or_else(no_server)?;
        let flags = Flags::parse(*octet);
        // A server that asks for no proof, when the user gave a token, is not the one that the user
        // means; and no server uses what it was not asked for.
        let is_answer = flags.token == asked.token && *octet & !asked.emit() == 0;
        if !is_answer {
            return Err(no_server());
        }
        let nonce = if flags.token { Some(rest.first_chunk().copied().ok_or_else(no_server)?) } else { None };
        Ok(Agreed { protocol: 2, flags, nonce })
    }
}

fn no_server() -> Failure {
    out_of_step().remedy("is it rddp serve? If so, run the same version of rddp at both ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_told_apart() {
        let flags = Flags::default();
        let (token, trees) = (Flags { token: true, ..flags }, Flags { trees: true, ..flags });
        for (octets, hello) in [
            (&b"rddp-files 1"[..], Some(Hello::One)),
            (b"rddp-files 1\0", None),
            (b"rddp-files 2", None),
            (b"rddp-files 2\0", Some(Hello::Two(flags))),
            (b"rddp-files 2\x01", Some(Hello::Two(token))),
            (b"rddp-files 2\xe0", Some(Hello::Two(flags))),
            (b"rddp-files 2\x02", Some(Hello::Two(Flags { large: true, ..flags }))),
            (b"rddp-files 2\xe1 and more", Some(Hello::Two(token))),
            (b"rddp-files 2\x04", Some(Hello::Two(trees))),
            (b"rddp-files 2\x1d", Some(Hello::Two(Flags::all(true)))),
            (b"rddp-files 3\0", None),
            (b"", None),
        ] {
            assert_eq!(Hello::parse(octets), hello, "{octets:?}");
        }
    }

    #[test]
    fn each_end_understands_the_others_greeting() {
        let flags = (0..32).map(Flags::parse);
        for hello in flags.map(Hello::Two).chain([Hello::One]) {
            assert_eq!(Hello::parse(&hello.emit()), Some(hello));
            let nonce = matches!(hello, Hello::Two(Flags { token: true, .. })).then_some([7; 32]);
            let answer = hello.answer(nonce.as_ref());
            let agreed = hello.agreed(&answer).unwrap();
            assert_eq!(agreed.nonce, nonce);
            assert_eq!(hello.agreed(&[&answer[..], b"more"].concat()).unwrap(), agreed);
        }
    }

    #[test]
    fn a_server_agrees_to_no_more_than_was_asked_and_to_the_token() {
        let [with, without] = [true, false].map(|token| Hello::Two(Flags::all(token)));
        assert!(with.agreed(&without.answer(None)).is_err());
        assert!(without.agreed(&with.answer(Some(&[7; 32]))).is_err());
        // An older server of protocol 2 agrees to less.
        let old = without.agreed(b"rddp-files 2\x04").unwrap();
        assert!(old.flags.trees && !old.flags.offers);
        let less = Hello::Two(Flags { trees: true, ..Flags::default() });
        assert!(less.agreed(b"rddp-files 2\x0c").is_err());
    }
}

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
//! | 2 | FPDUs may be longer than TCP's segments; reserved, neither end sets it yet |
//! | 4 | the request may be about a tree (`PutTree`, `GetTree`) |

use super::protocol::out_of_step;
use super::token::Nonce;
use crate::failure::Failure;

/// The greeting of protocol 1.
pub(super) const ONE: &[u8] = b"rddp-files 1";

const TWO: &[u8] = b"rddp-files 2";

const TOKEN: u8 = 1;
const TREES: u8 = 4;

/// A client's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    One,
    Two { token: bool, trees: bool },
}

impl Hello {
    pub(super) fn parse(octets: &[u8]) -> Option<Self> {
        if octets == ONE {
            return Some(Hello::One);
        }
        let flags = octets.strip_prefix(TWO)?.first()?;
        Some(Hello::Two { token: flags & TOKEN != 0, trees: flags & TREES != 0 })
    }

    pub(super) fn emit(self) -> Vec<u8> {
        match self {
            Hello::One => ONE.to_vec(),
            Hello::Two { token, trees } => flags(token, trees),
        }
    }

    /// Returns the private data of the server's Reply to this greeting.
    pub(super) fn answer(self, nonce: Option<&Nonce>) -> Vec<u8> {
        match self {
            Hello::One => Vec::new(),
            Hello::Two { trees, .. } => {
                [&flags(nonce.is_some(), trees)[..], nonce.map_or(&[], |nonce| nonce)].concat()
            }
        }
    }

    /// Returns the nonce in the server's Reply, if the client has asked to use a token.
    pub(super) fn nonce(self, answer: &[u8]) -> Result<Option<Nonce>, Failure> {
        let Hello::Two { token, trees } = self else { return Ok(None) };
        let (flags, rest) = answer.strip_prefix(TWO).and_then(<[u8]>::split_first).ok_or_else(no_server)?;
        // A server that asks for no proof, when the user gave a token, is not the one that the user
        // means.
        if *flags & !TREES != u8::from(token) * TOKEN {
            return Err(no_server());
        }
        if trees && *flags & TREES == 0 {
            return Err(Failure::refused("this server takes one file at a time")
                .remedy("run a newer rddp serve, or name each file alone, without --recursive"));
        }
        if token { rest.first_chunk().copied().map(Some).ok_or_else(no_server) } else { Ok(None) }
    }
}

fn flags(token: bool, trees: bool) -> Vec<u8> {
    [TWO, &[(u8::from(token) * TOKEN) | (u8::from(trees) * TREES)]].concat()
}

fn no_server() -> Failure {
    out_of_step().remedy("is it rddp serve? If so, run the same version of rddp at both ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_told_apart() {
        let two = |token| Some(Hello::Two { token, trees: false });
        for (octets, hello) in [
            (&b"rddp-files 1"[..], Some(Hello::One)),
            (b"rddp-files 1\0", None),
            (b"rddp-files 2", None),
            (b"rddp-files 2\0", two(false)),
            (b"rddp-files 2\x01", two(true)),
            (b"rddp-files 2\xfa", two(false)),
            (b"rddp-files 2\xfb and more", two(true)),
            (b"rddp-files 2\x04", Some(Hello::Two { token: false, trees: true })),
            (b"rddp-files 3\0", None),
            (b"", None),
        ] {
            assert_eq!(Hello::parse(octets), hello, "{octets:?}");
        }
    }

    #[test]
    fn each_end_understands_the_others_greeting() {
        let two = |token, trees| Hello::Two { token, trees };
        for hello in [Hello::One, two(false, false), two(true, false), two(false, true), two(true, true)] {
            assert_eq!(Hello::parse(&hello.emit()), Some(hello));
            let nonce = matches!(hello, Hello::Two { token: true, .. }).then_some([7; 32]);
            let answer = hello.answer(nonce.as_ref());
            assert_eq!(hello.nonce(&answer).unwrap(), nonce);
            assert_eq!(hello.nonce(&[&answer[..], b"more"].concat()).unwrap(), nonce);
        }
        assert!(two(true, false).nonce(&two(true, false).emit()).is_err());
        // An older server of protocol 2 does not know of trees.
        assert!(two(false, true).nonce(&two(false, false).answer(None)).is_err());
    }
}

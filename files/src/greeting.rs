//! Greetings: the private data of MPA's Request and Reply, which names the protocol and its flags.
//!
//! | Request | Reply |
//! |---|---|
//! | `rddp-files 3`, flags | `rddp-files 3`, flags, with flag 1 a nonce of 32 octets |
//!
//! The client's flags, one octet, say what its user asks for. The server's flags are those of them
//! that the server will use, too. Octets behind the flags are ignored at either end. The number is
//! the protocol's version, and each end speaks one.
//!
//! | flag | meaning |
//! |---|---|
//! | 1 | each request comes with a proof that the client has the token |
//! | 2 | FPDUs may be longer than TCP's segments, both ways (against RFC 5044 §4.5) |

use rddp_command::failure::Failure;

use super::protocol::{SAME_VERSION, out_of_step};
use super::token::Nonce;

/// The beginning of a greeting of any version.
const NAME: &[u8] = b"rddp-files ";

const VERSION: u8 = b'3';

const TOKEN: u8 = 1;
const LARGE: u8 = 2;

/// A client's greeting, or what the server agrees to: the flags of one end, or those of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) token: bool,
    pub(super) large: bool,
}

/// The reason why octets are no greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHello {
    OtherVersion,
    OtherProtocol,
}

/// The outcome of the greetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) large: bool,
    pub(super) nonce: Option<Nonce>,
}

impl Hello {
    pub(super) fn parse(octets: &[u8]) -> Result<Self, NoHello> {
        Self::split(octets).map(|(flags, _)| Hello { token: flags & TOKEN != 0, large: flags & LARGE != 0 })
    }

    /// Returns the flags of a greeting, and what is behind them.
    fn split(octets: &[u8]) -> Result<(u8, &[u8]), NoHello> {
        match octets.strip_prefix(NAME).ok_or(NoHello::OtherProtocol)? {
            [VERSION, flags, rest @ ..] => Ok((*flags, rest)),
            _ => Err(NoHello::OtherVersion),
        }
    }

    fn flags(self) -> u8 {
        (u8::from(self.token) * TOKEN) | (u8::from(self.large) * LARGE)
    }

    pub(super) fn emit(self) -> Vec<u8> {
        [NAME, &[VERSION, self.flags()]].concat()
    }

    /// Returns the private data of the server's Reply to this greeting.
    pub(super) fn answer(self, nonce: Option<&Nonce>) -> Vec<u8> {
        let agreed = Hello { token: nonce.is_some(), ..self };
        [&agreed.emit()[..], nonce.map_or(&[], |nonce| nonce)].concat()
    }

    /// Returns what the server's Reply agrees to.
    pub(super) fn agreed(self, answer: &[u8]) -> Result<Agreed, Failure> {
        let (flags, rest) = Self::split(answer).map_err(|no| match no {
            NoHello::OtherVersion => Failure::peer("the server speaks another version").remedy(SAME_VERSION),
            NoHello::OtherProtocol => no_server(),
        })?;
        // A server that asks for no proof, when the user gave a token, is not the one that the user
        // means; and no server uses what it was not asked for.
        let token = flags & TOKEN != 0;
        if token != self.token || flags & !self.flags() != 0 {
            return Err(no_server());
        }
        let nonce = if token { Some(rest.first_chunk().copied().ok_or_else(no_server)?) } else { None };
        Ok(Agreed { large: flags & LARGE != 0, nonce })
    }
}

fn no_server() -> Failure {
    out_of_step().remedy(format!("is it rddp serve? If so, {SAME_VERSION}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_told_apart() {
        let none = Hello::default();
        let (token, large) = (Hello { token: true, ..none }, Hello { large: true, ..none });
        for (octets, hello) in [
            (&b"rddp-files 3\0"[..], Ok(none)),
            (b"rddp-files 3\x01", Ok(token)),
            (b"rddp-files 3\x02", Ok(large)),
            (b"rddp-files 3\xfc", Ok(none)),
            (b"rddp-files 3\xfd and more", Ok(token)),
            (b"rddp-files 3", Err(NoHello::OtherVersion)),
            (b"rddp-files 1", Err(NoHello::OtherVersion)),
            (b"rddp-files 2\x1c", Err(NoHello::OtherVersion)),
            (b"rddp-files 3\0\0", Ok(none)),
            (b"rddp-ping 3\0", Err(NoHello::OtherProtocol)),
            (b"", Err(NoHello::OtherProtocol)),
        ] {
            assert_eq!(Hello::parse(octets), hello, "{octets:?}");
        }
    }

    #[test]
    fn each_end_understands_the_others_greeting() {
        for (token, large) in [(false, false), (false, true), (true, false), (true, true)] {
            let hello = Hello { token, large };
            assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
            let nonce = token.then_some([7; 32]);
            let answer = hello.answer(nonce.as_ref());
            let agreed = hello.agreed(&answer).unwrap();
            assert_eq!(agreed, Agreed { large, nonce });
            assert_eq!(hello.agreed(&[&answer[..], b"more"].concat()).unwrap(), agreed);
        }
    }

    /// RDMA CM leaves a request that many octets over InfiniBand.
    #[test]
    fn the_longest_greeting_is_shorter_than_56_octets() {
        let hello = Hello { token: true, large: true };
        let longest = hello.emit().len().max(hello.answer(Some(&[7; 32])).len());
        assert!(longest < 56, "{longest}");
    }

    #[test]
    fn a_server_agrees_to_no_more_than_was_asked_and_to_the_token() {
        let [with, without] = [true, false].map(|token| Hello { token, large: false });
        assert!(with.agreed(&without.answer(None)).is_err());
        assert!(without.agreed(&with.answer(Some(&[7; 32]))).is_err());
        assert!(without.agreed(b"rddp-files 3\x02").is_err());
        assert!(without.agreed(b"rddp-files 3\x04").is_err());
        assert!(!Hello { large: true, ..without }.agreed(b"rddp-files 3\0").unwrap().large);
    }

    #[test]
    fn a_server_of_another_version_is_told_with_the_remedy() {
        let hello = Hello::default();
        for answer in [&b"rddp-files 2\x1c"[..], b"rddp-files 4\0"] {
            let failure = hello.agreed(answer).unwrap_err();
            assert!(failure.to_string().contains("another version"), "{failure}");
            assert_eq!(failure.how(), Some(SAME_VERSION));
        }
    }
}

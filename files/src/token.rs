//! The token of `rddp serve`: a secret of which a client proves knowledge without sending it.
//!
//! The server draws a nonce for each connection. With each request the client sends the
//! HMAC-SHA256, with the token as its key, of nonce and request. Nothing is encrypted, the octets
//! of files are not authenticated, and neither is the server. The token keeps away everybody who
//! can connect but cannot change the packets of others.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use rddp_command::failure::Failure;
use sha2::Sha256;

/// Octets of the shortest token: less can be guessed by who has heard a proof.
const SHORTEST: usize = 16;

/// Octets of the longest token.
const LONGEST: usize = 4096;

/// The remedy for a file that has no token that will do.
const MAKE: &str = "make one: rddp serve --new-token FILE";

/// The remedy for a file that is not there, at either end.
const NAME: &str = "name the file that has the server's token (--token, RDDP_TOKEN_FILE); rddp serve --new-token FILE makes one";

/// The environment variable that names the file with the token, unless `--token` does.
const VARIABLE: &str = "RDDP_TOKEN_FILE";

#[derive(Clone)]
pub(super) struct Token(Hmac<Sha256>);

/// Octets of the nonce: random, drawn by the server for each connection.
pub(super) type Nonce = [u8; 32];

/// Returns a nonce that cannot be guessed.
pub(super) fn nonce() -> Result<Nonce, Failure> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
    Ok(nonce)
}

/// Makes a file with a new token, which its user alone can read.
pub fn make(path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::failed(format!("{}: it is there already", path.display()))
            .remedy("use it, or name another file"),
        _ => Failure::failed(format!("{}: {error}", path.display())),
    };
    let text: String = nonce()?.iter().map(|octet| format!("{octet:02x}")).collect();
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // What is left of it would be in the way of the next try.
        let _ = std::fs::remove_file(path);
        failed(error).remedy("make room there, or name a file elsewhere")
    })
}

impl Token {
    /// Reads the token from the file that is named, or else from that of the environment.
    pub(super) fn of(named: Option<&Path>) -> Result<Option<Self>, Failure> {
        let of_environment = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        named.or(of_environment.as_deref().map(Path::new)).map(Token::read).transpose()
    }

    /// Reads a token from a file, without the end of the line.
    fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |why: &str| Failure::failed(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => failed("no such file").remedy(NAME),
            _ => failed(&error.to_string()),
        })?;
        let there = file.metadata().map_err(|error| failed(&error.to_string()))?;
        if there.is_dir() {
            return Err(failed("not a regular file"));
        }
        if there.is_file() && there.mode() & 0o006 != 0 {
            return Err(failed("others can read it or write to it").remedy("chmod 600, and a new token"));
        }
        let mut octets = Vec::new();
        let read = file.take(LONGEST as u64 + 3).read_to_end(&mut octets);
        read.map_err(|error| failed(&error.to_string()))?;
        let token = octets.strip_suffix(b"\n").unwrap_or(&octets);
        let token = token.strip_suffix(b"\r").unwrap_or(token);
        match token.len() {
            0 => Err(failed("it is empty").remedy(MAKE)),
            1..SHORTEST => Err(failed(&format!("shorter than {SHORTEST} octets")).remedy(MAKE)),
            // RFC 2104 §2: a key may have any length.
            SHORTEST..=LONGEST => {
                Hmac::new_from_slice(token).map(Token).map_err(|error| failed(&error.to_string()))
            }
            _ => Err(failed(&format!("longer than {LONGEST} octets")).remedy(MAKE)),
        }
    }

    /// Returns the proof that this end has the token, in hexadecimal.
    pub(super) fn sign(&self, nonce: &Nonce, request: &str) -> String {
        let proof = self.mac(nonce, request).finalize().into_bytes();
        proof.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// Checks a proof, in a time that does not depend on how much of it is right.
    pub(super) fn verify(&self, nonce: &Nonce, request: &str, proof: &str) -> bool {
        unhex(proof).is_some_and(|proof| self.mac(nonce, request).verify_slice(&proof).is_ok())
    }

    fn mac(&self, nonce: &Nonce, request: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(nonce);
        mac.update(request.as_bytes());
        mac
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 §4.3: the beginning of its data serves as the nonce.
    #[test]
    fn it_is_hmac_sha_256() {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let proof = unhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843").unwrap();
        assert!(mac.verify_slice(&proof).is_ok());
        let token = |key: &[u8]| Token(Hmac::new_from_slice(key).unwrap());
        let nonce = *b"what do ya want for nothing? abc";
        let proof = token(b"Jefe").sign(&nonce, "request");
        assert!(token(b"Jefe").verify(&nonce, "request", &proof));
        assert!(!token(b"Jefe").verify(&nonce, "requesT", &proof));
        assert!(!token(b"Jefe").verify(&[0; 32], "request", &proof));
        assert!(!token(b"jefe").verify(&nonce, "request", &proof));
        for bad in ["", "5", "5bd", "zz", "é1", &proof[..62], &format!("{proof}00")] {
            assert!(!token(b"Jefe").verify(&nonce, "request", bad), "{bad}");
        }
    }

    #[test]
    fn the_end_of_the_line_is_not_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (text, token) in
            [("a b", "a b"), ("a b\n", "a b"), ("a b\r\n", "a b"), ("a\n\n", "a\n"), (" \n", " ")]
        {
            let [text, token] = [text, token].map(|text| format!("of sixteen octets{text}"));
            std::fs::write(&path, &text).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            std::fs::set_permissions(&path, private).unwrap();
            let meant = Token(Hmac::new_from_slice(token.as_bytes()).unwrap());
            assert_eq!(
                Token::read(&path).unwrap().sign(&[7; 32], "x"),
                meant.sign(&[7; 32], "x"),
                "{text:?}"
            );
            std::fs::remove_file(&path).unwrap();
        }
    }
}

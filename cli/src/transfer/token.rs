//! The token of `rddp serve`: a secret of which a client proves knowledge without sending it.
//!
//! The server draws a nonce for each connection. With each request the client sends the
//! HMAC-SHA256, with the token as its key, of nonce and request. Nothing is encrypted, the octets
//! of files are not authenticated, and neither is the server. The token keeps away everybody who
//! can connect but cannot change the packets of others.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::failure::Failure;

/// Octets of the longest token.
const LONGEST: usize = 4096;

/// A command that makes a token.
const MAKE: &str = "make one: (umask 077; openssl rand -base64 32 > FILE)";

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

impl Token {
    /// Reads a token from a file, without the end of the line.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |why: &str| Failure::failed(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed("no such file"),
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
            // RFC 2104 §2: a key may have any length.
            1..=LONGEST => Hmac::new_from_slice(token).map(Token).map_err(|error| failed(&error.to_string())),
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
            std::fs::write(&path, text).unwrap();
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

//! SHA-256 over a file while its octets pass.

use std::fs::File;
use std::io::Read;

use sha2::{Digest, Sha256};

use super::files::FileError;
use crate::failure::Failure;

/// Octets that are read at a time.
pub(super) const CHUNK: usize = 1 << 20;

#[derive(Clone)]
pub(super) struct Checksum(Sha256);

impl Checksum {
    pub(super) fn new() -> Self {
        Checksum(Sha256::new())
    }

    pub(super) fn add(&mut self, octets: &[u8]) {
        self.0.update(octets);
    }

    /// Adds the next `len` octets of `file`, or all that there are, and returns how many. `tick` is
    /// called now and then.
    pub(super) fn add_all(
        &mut self,
        mut file: &File,
        len: u64,
        name: &str,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<u64, FileError> {
        let mut chunk = vec![0; CHUNK];
        let mut done = 0;
        while done < len {
            let want = usize::try_from(len - done).unwrap_or(CHUNK).min(CHUNK);
            match file.read(&mut chunk[..want]) {
                Ok(0) => break,
                Ok(count) => {
                    self.add(&chunk[..count]);
                    done += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::new(name, error)),
            }
            tick().map_err(FileError::Stopped)?;
        }
        Ok(done)
    }

    /// Returns the checksum in hexadecimal.
    pub(super) fn so_far(&self) -> String {
        self.0.clone().finalize().iter().map(|octet| format!("{octet:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4.
    #[test]
    fn it_is_sha_256() {
        let mut checksum = Checksum::new();
        checksum.add(b"a");
        checksum.add(b"bc");
        assert_eq!(checksum.so_far(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

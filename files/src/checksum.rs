//! Checksums of files: CRC-32C of each chunk, or SHA-256 over a whole file while its octets pass.

use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crc_fast::{CrcAlgorithm, Digest as Crc};
use rddp_command::failure::Failure;
use rddp_command::units::about;
use rddp_rnic::MemError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::FileError;
use super::part::Part;

/// Octets that are read at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// Octets of holes in one file of which SHA-256 is computed.
const MOST_ZEROS: u64 = 64 << 30;

/// Pieces that wait for the thread that computes SHA-256.
const AHEAD: usize = 8;

/// Octets from which on a thread is worth it.
const WORTH_A_THREAD: usize = 64 << 10;

/// The checksum of octets on their way from disk to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// CRC-32C of each chunk of at most 512 KiB
    #[default]
    Crc32c,
    /// SHA-256 of each whole file, too
    Sha256,
    /// Nothing beside the CRC of each FPDU, which the connection has by default
    None,
}

impl Check {
    /// Returns the checksum of a chunk, where chunks have one.
    pub(super) fn of_chunk(self, octets: &Part<'_>) -> Result<Option<u32>, MemError> {
        (self != Check::None).then(|| octets.crc()).transpose()
    }

    /// Returns the checksum of octets, where chunks have one.
    pub(super) fn of(self, octets: &[u8]) -> Option<u32> {
        (self != Check::None).then(|| crc_fast::crc32_iscsi(octets))
    }
}

/// SHA-256 over the octets that pass, where it is asked for. A thread computes it for long files.
pub(super) struct Checksum {
    hash: Option<Hash>,
    /// The buffer for octets that come from registered memory.
    kept: Vec<u8>,
    /// Octets of holes so far.
    zeros: u64,
}

enum Hash {
    Here(Sha256),
    There(SyncSender<Work>),
}

enum Work {
    Add(Vec<u8>),
    SoFar(SyncSender<Sha256>),
}

impl Checksum {
    pub(super) fn new(check: Check) -> Self {
        let hash = (check == Check::Sha256).then(|| Hash::Here(Sha256::new()));
        Checksum { hash, kept: Vec::new(), zeros: 0 }
    }

    pub(super) fn add(&mut self, octets: &[u8]) {
        if let Some(Hash::Here(hash)) = &self.hash
            && octets.len() >= WORTH_A_THREAD
        {
            self.hash = Some(start(hash.clone()));
        }
        match &mut self.hash {
            None => {}
            Some(Hash::Here(hash)) => hash.update(octets),
            // The thread ends after this end is dropped.
            Some(Hash::There(work)) => drop(work.send(Work::Add(octets.to_vec()))),
        }
    }

    /// Adds octets of registered memory.
    pub(super) fn add_part(&mut self, octets: &Part<'_>) -> Result<(), MemError> {
        if self.hash.is_some() {
            let mut kept = std::mem::take(&mut self.kept);
            self.add(octets.copied(&mut kept)?);
            self.kept = kept;
        }
        Ok(())
    }

    /// Adds the octets of a hole. `tick` is called now and then: a hole costs the other end nothing
    /// and this end as much time as octets do. So a file may have only so many.
    pub(super) async fn add_zeros(
        &mut self,
        count: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        if self.hash.is_none() || count == 0 {
            return Ok(());
        }
        self.zeros = self.zeros.saturating_add(count);
        if self.zeros > MOST_ZEROS {
            return Err(FileError::Stopped(
                Failure::refused(format!(
                    "holes of more than {} are too many for SHA-256",
                    about(MOST_ZEROS)
                ))
                .remedy("--checksum crc32c, which passes over holes"),
            ));
        }
        let (zeros, mut left) = (vec![0; CHUNK], count);
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            self.add(&zeros[..len]);
            left -= len as u64;
            tick().await.map_err(FileError::Stopped)?;
        }
        Ok(())
    }

    /// Returns the checksum in hexadecimal; empty if none was asked for.
    pub(super) fn so_far(&self) -> String {
        self.digest().map_or_else(String::new, |digest| hex(&digest))
    }

    /// Returns the checksum, if one was asked for.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        let hash = match self.hash.as_ref()? {
            Hash::Here(hash) => Some(hash.clone()),
            Hash::There(work) => {
                let (give, take) = sync_channel(1);
                work.send(Work::SoFar(give)).ok().and_then(|()| take.recv().ok())
            }
        };
        // The thread ends before this end only if it panics, and then no checksum shall match.
        Some(hash.map_or([0; 32], |hash| hash.finalize().into()))
    }
}

/// Starts a thread that goes on from `hash`, or stays here if there is none to be had.
fn start(hash: Sha256) -> Hash {
    let (give, take) = sync_channel(AHEAD);
    let state = hash.clone();
    match thread::Builder::new().name("rddp-sha256".into()).spawn(move || compute(state, &take)) {
        Ok(_) => Hash::There(give),
        Err(_) => Hash::Here(hash),
    }
}

fn compute(mut hash: Sha256, work: &Receiver<Work>) {
    for work in work {
        match work {
            Work::Add(octets) => hash.update(&octets),
            Work::SoFar(give) => drop(give.send(hash.clone())),
        }
    }
}

/// The first octets of a file, by which two ends find out that they have the same ones.
pub(super) struct Beginning {
    pub(super) len: u64,
    /// CRC-32C or SHA-256, in hexadecimal.
    pub(super) proof: String,
    /// The checksum, from which the rest goes on.
    pub(super) checksum: Checksum,
}

/// Reads the next `len` octets of `file`, or all that there are. `tick` is called now and then.
pub(super) async fn beginning(
    mut file: &File,
    len: u64,
    check: Check,
    name: &str,
    tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<Beginning, FileError> {
    let (mut checksum, mut crc) = (Checksum::new(check), Crc::new(CrcAlgorithm::Crc32Iscsi));
    let mut chunk = vec![0; CHUNK];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(CHUNK).min(CHUNK);
        match file.read(&mut chunk[..want]) {
            Ok(0) => break,
            Ok(count) if check == Check::Sha256 => {
                checksum.add(&chunk[..count]);
                done += count as u64;
            }
            Ok(count) => {
                crc.update(&chunk[..count]);
                done += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FileError::new(name, error)),
        }
        tick().await.map_err(FileError::Stopped)?;
    }
    let proof = match check {
        Check::Sha256 => checksum.so_far(),
        Check::Crc32c | Check::None => format!("{:08x}", crc.finalize()),
    };
    Ok(Beginning { len: done, proof, checksum })
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4.
    #[test]
    fn it_is_sha_256() {
        let mut checksum = Checksum::new(Check::Sha256);
        checksum.add(b"a");
        checksum.add(b"bc");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum.so_far(), abc);
        assert_eq!(Checksum::new(Check::Crc32c).so_far(), "");
    }

    #[test]
    fn a_thread_goes_on_where_this_one_ended() {
        let octets = vec![7; 3 * WORTH_A_THREAD];
        let mut checksum = Checksum::new(Check::Sha256);
        checksum.add(b"begin");
        checksum.add(&octets);
        assert!(matches!(checksum.hash, Some(Hash::There(_))));
        let hub = super::super::tasks::Hub::new(&rddp_rnic::Rnic::open().unwrap()).unwrap();
        let mut ticks = 0;
        let mut tick = async || {
            ticks += 1;
            Ok(())
        };
        hub.run(checksum.add_zeros(CHUNK as u64 + 3, &mut tick)).unwrap().unwrap();
        assert_eq!(ticks, 2);
        checksum.add(b"end");
        let zeros = vec![0; CHUNK + 3];
        let whole = [&b"begin"[..], &octets, &zeros, b"end"].concat();
        assert_eq!(checksum.so_far(), hex(&Sha256::digest(whole)));
    }

    /// A peer can announce 2^63 octets of holes without sending one.
    #[test]
    fn holes_that_would_take_for_ever_are_refused() {
        let hub = super::super::tasks::Hub::new(&rddp_rnic::Rnic::open().unwrap()).unwrap();
        let mut sha256 = Checksum::new(Check::Sha256);
        let mut given_up = async || Err(Failure::failed("given up"));
        let stopped = |file: Result<(), FileError>| match file.unwrap_err() {
            FileError::Stopped(failure) => failure.to_string(),
            other => panic!("{other}"),
        };
        let some = hub.run(sha256.add_zeros(MOST_ZEROS, &mut given_up)).unwrap();
        assert_eq!(stopped(some), "given up");
        let too_many = hub.run(sha256.add_zeros(1, &mut given_up)).unwrap();
        assert!(stopped(too_many).contains("too many for SHA-256"));
        hub.run(Checksum::new(Check::Crc32c).add_zeros(u64::MAX, &mut given_up)).unwrap().unwrap();
    }

    #[test]
    fn a_beginning_is_proved_by_its_octets() {
        use std::io::Seek;

        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"123456789 and more").unwrap();
        for (check, proof) in
            [(Check::Crc32c, "e3069283"), (Check::None, "e3069283"), (Check::Sha256, "15e2b0d3")]
        {
            file.rewind().unwrap();
            let mut ticks = 0;
            let mut tick = async || {
                ticks += 1;
                Ok(())
            };
            let hub = super::super::tasks::Hub::new(&rddp_rnic::Rnic::open().unwrap()).unwrap();
            let found = hub.run(beginning(&file, 9, check, "file", &mut tick)).unwrap().unwrap();
            assert!(found.len == 9 && found.proof.starts_with(proof), "{}", found.proof);
            assert_eq!(ticks, 1);
        }
    }
}

//! Standard input as a file that is sent: octets in order, and no size before its end.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::failure::Failure;

use super::checksum::{Check, Checksum};

pub(super) struct Stdin {
    checksum: Checksum,
    /// The offset of the next octet.
    at: u64,
}

impl Stdin {
    pub(super) fn new(check: Check) -> Self {
        Stdin { checksum: Checksum::new(check), at: 0 }
    }

    pub(super) fn checksum(&self) -> String {
        self.checksum.so_far()
    }

    /// Waits for a moment until there are octets, or the end.
    pub(super) fn is_ready(&self) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        // A descriptor for which `poll` fails reports its error when it is read from.
        nix::poll::poll(&mut fds, PollTimeout::from(100u8)) != Ok(0)
    }

    /// Reads the next octets, at most `most`, and returns their offset. `None` at the end.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<(u64, Vec<u8>)>, Failure> {
        let mut octets = vec![0; most];
        let count = loop {
            // Not the buffered handle, since `poll` does not know what it has in store.
            match io::Read::read(&mut raw()?, &mut octets) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(&error))?,
            }
        };
        octets.truncate(count);
        self.checksum.add(&octets);
        let at = self.at;
        self.at += count as u64;
        Ok((count > 0).then_some((at, octets)))
    }
}

fn raw() -> Result<impl Read, Failure> {
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
    Ok(std::fs::File::from(stdin))
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format!("standard input: {error}"))
}

/// Returns the permissions that new files of this process do not get, nor what it sends of standard
/// input.
pub(super) fn umask() -> u32 {
    // umask(2) can be read only by changing it, for all threads.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0o022)
}

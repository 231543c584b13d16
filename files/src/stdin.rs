//! Standard input as a file that is sent: octets in order, and no size before its end.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::failure::Failure;

use super::checksum::{Check, Checksum};
use super::part::Part;

pub(super) struct Stdin {
    checksum: Checksum,
    /// The buffer into which octets are read.
    kept: Vec<u8>,
    /// The offset of the next octet.
    at: u64,
}

impl Stdin {
    pub(super) fn new(check: Check) -> Self {
        Stdin { checksum: Checksum::new(check), kept: Vec::new(), at: 0 }
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

    /// Reads the next octets, at most as many as `room` has, into its beginning, and returns their
    /// offset and number. `None` at the end.
    pub(super) fn next(&mut self, room: &Part<'_>) -> Result<Option<(u64, usize)>, Failure> {
        // A pipe cannot be read into registered memory: it has no positions.
        self.kept.resize(room.len(), 0);
        let count = loop {
            // Not the buffered handle, since `poll` does not know what it has in store.
            match io::Read::read(&mut raw()?, &mut self.kept) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(&error))?,
            }
        };
        let octets = &self.kept[..count];
        room.memory.write(room.range.start, octets)?;
        self.checksum.add(octets);
        let at = self.at;
        self.at += count as u64;
        Ok((count > 0).then_some((at, count)))
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

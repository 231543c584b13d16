//! The record that is written to a thread's socket, and names the work.

use std::ffi::c_int;

/// Octets of a descriptor; the report's has about 60.
pub const DESCRIPTOR: usize = 16;

/// Names a task. Task 0 is none: the thread collects anew what its tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// ID of the process that wrote it: a child of `fork` has the socket too.
    pub(super) process: u32,
    /// Descriptor of the task, for readers of a trace of system calls.
    pub(super) fd: c_int,
    pub(super) task: u64,
}

impl Descriptor {
    pub(super) fn octets(self) -> [u8; DESCRIPTOR] {
        let mut octets = [0; DESCRIPTOR];
        octets[..4].copy_from_slice(&self.process.to_ne_bytes());
        octets[4..8].copy_from_slice(&self.fd.to_ne_bytes());
        octets[8..].copy_from_slice(&self.task.to_ne_bytes());
        octets
    }

    pub(super) fn parse(octets: &[u8; DESCRIPTOR]) -> Option<Self> {
        let (process, rest) = octets.split_first_chunk()?;
        let (fd, rest) = rest.split_first_chunk()?;
        Some(Descriptor {
            process: u32::from_ne_bytes(*process),
            fd: c_int::from_ne_bytes(*fd),
            task: u64::from_ne_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_read_as_written_and_is_as_small_as_in_the_report() {
        const { assert!(DESCRIPTOR <= 64) };
        let descriptor = Descriptor { process: 7, fd: -1, task: u64::MAX - 1 };
        assert_eq!(Descriptor::parse(&descriptor.octets()), Some(descriptor));
    }
}

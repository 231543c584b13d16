//! A destination that accepts octets and cannot give them back: standard output, a pipe, a device.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::failure::{Failure, FailureKind};

use super::checksum::{CHUNK, Check, Checksum};
use super::files::FileError;
use super::part::Part;

/// Octets that a pipe which can be written to accepts without waiting (POSIX's `PIPE_BUF`, on
/// Linux).
const AT_ONCE: usize = 4096;

pub(super) struct Stream {
    file: File,
    name: String,
    checksum: Checksum,
    /// The buffer for octets that come from registered memory.
    kept: Vec<u8>,
    len: u64,
}

impl Stream {
    pub(super) fn new(file: File, name: &str, check: Check) -> Self {
        Stream { file, name: name.to_owned(), checksum: Checksum::new(check), kept: Vec::new(), len: 0 }
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn checksum(&self) -> String {
        self.checksum.so_far()
    }

    /// Writes zeros up to `offset`, in place of a hole, and `octets` behind them. `tick` is called
    /// now and then while they are not accepted.
    pub(super) async fn append(
        &mut self,
        offset: u64,
        octets: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let zeros = vec![0; if offset > self.len { CHUNK } else { 0 }];
        while self.len < offset {
            let len = usize::try_from(offset - self.len).unwrap_or(CHUNK).min(CHUNK);
            self.write(&zeros[..len], tick).await?;
        }
        self.write(octets, tick).await
    }

    /// Writes octets of registered memory as [`Stream::append`] does.
    pub(super) async fn append_part(
        &mut self,
        offset: u64,
        octets: &Part<'_>,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let mut kept = std::mem::take(&mut self.kept);
        self.append(offset, octets.copied(&mut kept).map_err(FileError::memory)?, tick).await?;
        self.kept = kept;
        Ok(())
    }

    async fn write(
        &mut self,
        octets: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let mut rest = octets;
        while !rest.is_empty() {
            if !self.is_ready() {
                tick().await.map_err(FileError::Stopped)?;
                continue;
            }
            match self.file.write(&rest[..rest.len().min(AT_ONCE)]) {
                Ok(count) => rest = &rest[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(self.wrong(error)),
            }
        }
        self.checksum.add(octets);
        self.len += octets.len() as u64;
        Ok(())
    }

    /// Waits until everything that was written has reached the disk, where there is one.
    pub(super) fn finish(&self) -> Result<(), FileError> {
        let kept =
            self.file.metadata().is_ok_and(|file| file.is_file() || file.file_type().is_block_device());
        if kept { self.file.sync_all().map_err(|error| self.wrong(error)) } else { Ok(()) }
    }

    /// Waits for a moment until octets are accepted.
    fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
        // A descriptor for which `poll` fails reports its error when it is written to.
        nix::poll::poll(&mut fds, PollTimeout::from(100u8)) != Ok(0)
    }

    fn wrong(&self, error: std::io::Error) -> FileError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPIPE) => FileError::Stopped(Failure::new(
                FailureKind::NobodyReads,
                format!("{}: nobody reads it any more", self.name),
            )),
            Some(Errno::ENOSPC | Errno::EDQUOT) => FileError::Full(self.name.clone()),
            _ => FileError::new(&self.name, error),
        }
    }
}

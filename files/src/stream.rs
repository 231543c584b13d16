//! A destination that accepts octets and cannot give them back: standard output, a pipe, a device.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::stat::makedev;
use rddp_command::failure::{Failure, FailureKind};

use super::checksum::{CHUNK, Check, Checksum};
use super::files::FileError;
use super::part::Part;

/// Octets that a pipe which can be written to accepts without waiting (POSIX's `PIPE_BUF`, on
/// Linux), where a write of more would wait for its reader.
const AT_ONCE: usize = 4096;

/// The device number of `/dev/null`.
const NULL: u64 = makedev(1, 3);

pub(super) struct Stream {
    file: File,
    /// Octets that are written at a time.
    most: usize,
    name: String,
    checksum: Checksum,
    /// The buffer for octets that come from registered memory.
    kept: Vec<u8>,
    len: u64,
}

impl Stream {
    pub(super) fn new(file: File, name: &str, check: Check) -> Self {
        let file = unwaiting(&file).unwrap_or(file);
        let most = if may_wait(&file) { AT_ONCE } else { usize::MAX };
        let (name, checksum) = (name.to_owned(), Checksum::new(check));
        Stream { file, most, name, checksum, kept: Vec::new(), len: 0 }
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
            let may_wait = self.most == AT_ONCE;
            if may_wait && !self.is_ready() {
                tick().await.map_err(FileError::Stopped)?;
                continue;
            }
            match self.file.write(&rest[..rest.len().min(self.most)]) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !may_wait && !self.is_ready() {
                        tick().await.map_err(FileError::Stopped)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
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

/// Opens a pipe, or `/dev/null`, once more, so that writes to it do not wait: what is shared with
/// other programs (standard output) keeps its own flags.
fn unwaiting(file: &File) -> Option<File> {
    let there = file.metadata().ok()?;
    if !may_wait(file) || !there.file_type().is_fifo() && there.rdev() != NULL {
        return None;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).ok()
}

/// Returns whether a write may wait for a reader.
fn may_wait(file: &File) -> bool {
    let is_kept = |there: Metadata| there.is_file() || there.file_type().is_block_device();
    let flags = fcntl(file, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    !flags.is_ok_and(|flags| flags.contains(OFlag::O_NONBLOCK)) && !file.metadata().is_ok_and(is_kept)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rddp_rnic::Rnic;

    use super::*;
    use crate::partial::Clobber;
    use crate::target::Target;
    use crate::tasks::Hub;

    /// Returns how often this thread has written.
    fn writes() -> u64 {
        let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
        counts.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
    }

    fn append(stream: &mut Stream, octets: &[u8]) {
        let hub = Hub::new(&Rnic::open().unwrap()).unwrap();
        hub.run(stream.append(0, octets, &mut async || Ok(()))).unwrap().unwrap();
    }

    #[test]
    fn a_chunk_is_written_by_few_calls() {
        let chunk = vec![7; 512 << 10];
        let (mut reader, writer) = std::io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
        let null = Target::of(Path::new("/dev/null"), Clobber::Yes).unwrap();
        let Target::Stream(null, _) = null else { panic!("a device is written to") };
        let shared = File::options().write(true).open("/dev/null").unwrap();
        for file in [File::from(OwnedFd::from(writer)), null, shared, tempfile::tempfile().unwrap()] {
            let mut stream = Stream::new(file, "name", Check::None);
            let before = writes();
            append(&mut stream, &chunk);
            assert!(writes() - before < 8, "{:?}: {}", stream.file, writes() - before);
        }
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == chunk);
    }

    /// Others that have a pipe open find it as it was, and a reader that is slow loses nothing.
    #[test]
    fn a_shared_pipe_keeps_its_flags() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let shared = writer.try_clone().unwrap();
        let chunk: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let mut stream = Stream::new(File::from(OwnedFd::from(writer)), "name", Check::None);
        let read = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut read = vec![0; 300_000];
                read.chunks_mut(1000).for_each(|some| reader.read_exact(some).unwrap());
                read
            });
            append(&mut stream, &chunk);
            reading.join().unwrap()
        });
        assert!(read == chunk);
        let flags = OFlag::from_bits_truncate(fcntl(&shared, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK));
    }
}

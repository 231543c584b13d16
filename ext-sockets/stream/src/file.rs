//! `sendfile`: the octets of a file as Sends.

use std::ffi::c_int;
use std::io::IoSlice;
use std::os::fd::RawFd;

use super::kind::Kind;
use super::sys::{Scratch, read_at, seek};
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Sends up to `count` octets of the file `from`: at `offset`, which then moves by as many as
    /// were sent, or at the file's own position, which moves instead. Returns 0 at the file's end.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and of reading the file; `EINVAL` for a file that cannot be
    /// read at an offset, as from the kernel's `sendfile`.
    pub fn send_file(&self, from: RawFd, offset: Option<&mut i64>, count: usize) -> Result<usize, Errno> {
        let start = match &offset {
            Some(offset) => **offset,
            None => match seek(self.kernel.calls, from, 0, libc::SEEK_CUR) {
                Err(Errno(libc::ESPIPE)) => Err(Errno::INVALID),
                at => at,
            }?,
        };
        let sent = self.send_file_at(from, start, count)?;
        let end = start + sent as i64;
        match offset {
            Some(offset) => *offset = end,
            None => drop(seek(self.kernel.calls, from, end, libc::SEEK_SET)?),
        }
        Ok(sent)
    }

    fn send_file_at(&self, from: RawFd, start: i64, count: usize) -> Result<usize, Errno> {
        let mut scratch = Scratch::take()?;
        let mut done = 0;
        while done < count {
            let sent = match self.send_chunk(from, start + done as i64, count - done, &mut scratch) {
                Ok((0, _)) => break,
                Ok(sent) => sent,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            done += sent.0;
            if sent.0 < sent.1 {
                break;
            }
        }
        Ok(done)
    }

    /// Sends one chunk; returns the octets sent, and the octets read.
    fn send_chunk(
        &self,
        from: RawFd,
        at: i64,
        count: usize,
        scratch: &mut [u8],
    ) -> Result<(usize, usize), Errno> {
        let room = if count > CHUNK { self.in_full_segments(CHUNK, K::HEADERS)? } else { count };
        let read = match read_at(self.kernel.calls, from, &mut scratch[..room], at) {
            Err(Errno(libc::ESPIPE)) => Err(Errno::INVALID),
            other => other,
        }?;
        if read == 0 {
            return Ok((0, 0));
        }
        let flags: c_int = if count > read { libc::MSG_MORE } else { 0 };
        Ok((self.send(&[IoSlice::new(&scratch[..read])], flags)?, read))
    }
}

/// Octets of the file that are read at a time: one Send of the usual size.
const CHUNK: usize = 64 * 1024;

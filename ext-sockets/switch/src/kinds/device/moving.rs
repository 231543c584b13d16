//! Calls that move octets.
//!
//! Octets go through memory of this library: the program's may not be mapped, and that of the
//! stream's slices has to be. No call sleeps in the stream; it sleeps on the program's descriptor,
//! as the program itself would.

use std::ffi::{c_int, c_short};
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use libc::{POLLIN, POLLOUT};
use rddp_real as real;
use rddp_rnic::{DeviceError, Error};
use rddp_sdp_rnic::SdpStream;
use rddp_stream::{Errno, Patience, handlers_restart, lent, raise_sigpipe};

use super::link::Link;
use super::socket::Device;
use crate::kinds::progress_other_sockets;
use crate::switch;

/// Octets that are moved at a time.
const CHUNK: usize = 256 << 10;

/// Octets for which a receive has room though none were there just before: more may come meanwhile.
const ROOM: usize = 4 << 10;

impl Device {
    pub(super) fn receive(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        self.refuse(flags, "MSG_OOB", libc::MSG_OOB, Errno::INVALID)?;
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::WOULD_BLOCK);
        }
        let (peeks, waits_for_all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
        let patience = self.patience(flags, |settings| settings.saved.rcvtimeo.duration());
        let room: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        while done < room {
            let chunk = CHUNK.min(room - done);
            if !has_room(pieces, done, chunk) {
                return if done > 0 { Ok(done) } else { Err(Errno::FAULT) };
            }
            let got = self.attempt(|link, stream| match link.is_deaf() {
                true => Ok(Vec::new()),
                false => received(stream, chunk, peeks),
            });
            match got {
                Ok(octets) => {
                    scatter(pieces, done, &octets);
                    done += octets.len();
                    // What is there was taken; a look sees the same again.
                    if octets.is_empty() || peeks || octets.len() < chunk && !waits_for_all {
                        break;
                    }
                }
                Err(Errno::WOULD_BLOCK) if done > 0 && !waits_for_all => break,
                Err(Errno::WOULD_BLOCK) => match self.sleep(POLLIN, flags, &patience) {
                    Err(_) if done > 0 => break,
                    slept => slept?,
                },
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(super) fn send_all(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        self.refuse(flags, "MSG_OOB", libc::MSG_OOB, Errno::UNSUPPORTED)?;
        let patience = self.patience(flags, |settings| settings.saved.sndtimeo.duration());
        let result = self.send_by_parts(pieces, flags, &patience);
        if result == Err(Errno::BROKEN_PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
            raise_sigpipe();
        }
        result
    }

    /// Sends a part of a file, from an offset, or from the file's own place, which moves on.
    pub(super) fn send_part_of_file(
        &self,
        from: c_int,
        offset: Option<&mut i64>,
        count: usize,
    ) -> Result<usize, Errno> {
        let mut octets = vec![0; count.min(CHUNK)];
        let (mut own, at) = match offset {
            Some(at) => (None, at),
            None => (Some(real::seek(from, 0, libc::SEEK_CUR)?), &mut 0),
        };
        let at = own.as_mut().unwrap_or(at);
        let mut done = 0;
        while done < count {
            let room = octets.len().min(count - done);
            let part = real::read_at(from, &mut octets[..room], *at)?;
            let sent = match part {
                0 => Ok(0),
                part => self.send_all(&[IoSlice::new(&octets[..part])], 0),
            };
            let sent = match sent {
                Err(error) if done == 0 => return Err(error),
                sent => sent.unwrap_or(0),
            };
            (done, *at) = (done + sent, *at + sent as i64);
            if sent == 0 || sent < part {
                break;
            }
        }
        if let Some(at) = own {
            real::seek(from, at, libc::SEEK_SET)?;
        }
        Ok(done)
    }

    fn send_by_parts(
        &self,
        pieces: &[IoSlice<'_>],
        flags: c_int,
        patience: &Patience,
    ) -> Result<usize, Errno> {
        let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        while done < whole {
            let octets = gathered(pieces, done, CHUNK.min(whole - done));
            if octets.is_empty() {
                return if done > 0 { Ok(done) } else { Err(Errno::FAULT) };
            }
            let sent = self.attempt(|_, stream| stream.try_send(&octets));
            let stopped = match sent {
                Ok(count) => {
                    done += count;
                    continue;
                }
                Err(Errno::WOULD_BLOCK) => self.sleep(POLLOUT, flags, patience),
                Err(error) => Err(error),
            };
            if stopped.is_err() {
                return if done > 0 { Ok(done) } else { stopped.map(|()| 0) };
            }
        }
        Ok(done)
    }

    /// Makes a call of the stream that does not sleep, and shows what is there behind it.
    fn attempt<T>(&self, call: impl FnOnce(&Link, &SdpStream) -> io::Result<T>) -> Result<T, Errno> {
        let _no_signals = real::NoSignals::here();
        let _at_work = self.held.work_on(self.fd).ok_or(Errno::NO_DESCRIPTOR)?;
        let link = self.link()?;
        let Some(stream) = link.stream()? else { return Err(Errno::WOULD_BLOCK) };
        link.gauge.enter();
        let result = call(&link, &stream);
        link.gauge.settle(self.fd);
        result.map_err(|error| errno_of(&error))
    }

    pub(super) fn shut(&self, how: c_int) -> Result<(), Errno> {
        let _no_signals = real::NoSignals::here();
        let link = self.link()?;
        let Some(stream) = link.stream()? else { return Err(Errno(libc::ENOTCONN)) };
        if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
            return Err(Errno::INVALID);
        }
        if stream.ready().over.is_some() {
            return Err(Errno(libc::ENOTCONN));
        }
        if how != libc::SHUT_WR && !link.receives_no_more() {
            stream.shutdown_receive();
            link.gauge.show_end();
        }
        if how != libc::SHUT_RD {
            stream.shutdown_send();
        }
        Ok(())
    }

    pub(super) fn patience(
        &self,
        flags: c_int,
        limit: impl FnOnce(&crate::socket::Settings) -> Option<Duration>,
    ) -> Patience {
        let limit = limit(&self.held.settings());
        Patience::new(flags & libc::MSG_DONTWAIT != 0, limit)
    }

    /// Sleeps until the descriptor has an event, as its flags say.
    ///
    /// # Errors
    /// EAGAIN: it may not sleep, or no time is left; EINTR.
    pub(super) fn sleep(&self, events: c_short, flags: c_int, patience: &Patience) -> Result<(), Errno> {
        if flags & libc::MSG_DONTWAIT != 0 || real::is_nonblocking(self.fd) || patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        sleep_on(self.fd, events, patience.left())
    }

    /// Refuses a flag that has no meaning here.
    fn refuse(&self, flags: c_int, name: &str, flag: c_int, errno: Errno) -> Result<(), Errno> {
        if flags & flag == 0 {
            return Ok(());
        }
        switch::tell_failed(format_args!("{name} is refused: SDP on a device has no urgent octets here"));
        Err(errno)
    }
}

/// Sleeps until `fd` has an event, at most for `left`.
pub(super) fn sleep_on(fd: c_int, events: c_short, left: Option<Duration>) -> Result<(), Errno> {
    let nap = [left, progress_other_sockets()].into_iter().flatten().min();
    let milliseconds = nap.map_or(-1, |nap| c_int::try_from(nap.as_millis() + 1).unwrap_or(c_int::MAX));
    match real::sleep_for(fd, events, milliseconds) {
        Err(Errno::INTERRUPTED) if left.is_none() && handlers_restart() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

fn received(stream: &SdpStream, chunk: usize, peeks: bool) -> io::Result<Vec<u8>> {
    let there = stream.ready().octets;
    let mut octets = vec![0; chunk.min(there.max(ROOM))];
    let count = stream.try_receive(&mut octets, peeks)?;
    octets.truncate(count);
    Ok(octets)
}

/// Returns up to `count` octets from the place `from` on; fewer in front of a page that is not
/// mapped.
fn gathered(pieces: &[IoSlice<'_>], from: usize, count: usize) -> Vec<u8> {
    let mut octets = Vec::with_capacity(count);
    let mut skip = from;
    for piece in pieces {
        let part = piece.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(piece.len());
        let part = &part[..part.len().min(count - octets.len())];
        let at = octets.len();
        octets.resize(at + part.len(), 0);
        let read = lent::read(part, &mut octets[at..]);
        octets.truncate(at + read);
        if read < part.len() || octets.len() == count {
            break;
        }
    }
    octets
}

/// Returns whether so many octets can be written from the place `from` on.
fn has_room(pieces: &mut [IoSliceMut<'_>], from: usize, count: usize) -> bool {
    parts(pieces, from, count).all(|(part, _)| lent::is_writable(part))
}

fn scatter(pieces: &mut [IoSliceMut<'_>], from: usize, octets: &[u8]) {
    for (part, at) in parts(pieces, from, octets.len()) {
        lent::fill(part, &octets[at..at + part.len()]);
    }
}

/// Returns the parts of the pieces that hold `count` octets from the place `from` on, each with its
/// place among these.
fn parts<'a>(
    pieces: &'a mut [IoSliceMut<'_>],
    from: usize,
    count: usize,
) -> impl Iterator<Item = (&'a mut [u8], usize)> {
    let (mut skip, mut at) = (from, 0);
    pieces.iter_mut().filter_map(move |piece| {
        let begins = skip.min(piece.len());
        skip -= begins;
        let len = (piece.len() - begins).min(count - at);
        let place = at;
        at += len;
        (len > 0).then(|| (&mut piece[begins..begins + len], place))
    })
}

/// Returns the errno of a call of the stream, or of the device.
pub(super) fn errno_of(error: &io::Error) -> Errno {
    if let Some(refusal) = error.get_ref().and_then(|error| error.downcast_ref()) {
        return errno_of_refusal(refusal);
    }
    Errno(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::InvalidData => libc::EPROTO,
        _ => libc::EIO,
    }))
}

/// Returns the errno of what the host or its device refuses.
fn errno_of_refusal(error: &Error) -> Errno {
    match error {
        Error::Host { error, .. }
        | Error::Device(DeviceError::Memory { error, .. } | DeviceError::Call { error, .. }) => {
            errno_of(error)
        }
        Error::Device(DeviceError::LockedMemory { .. }) => Errno(libc::ENOMEM),
        Error::Device(DeviceError::AddressInUse { .. }) => Errno(libc::EADDRINUSE),
        Error::Device(DeviceError::Elsewhere { .. } | DeviceError::NoAddress { .. }) => {
            Errno(libc::EADDRNOTAVAIL)
        }
        _ => Errno(libc::EIO),
    }
}

//! The trait that a kind of sockets implements, and the one enum that names them all.
//!
//! Without a method of its own a kind has the answer of a plain TCP socket: the call is the C
//! library's, and there is nothing to add.

use std::ffi::{c_int, c_short};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use rddp_real::Value;
use rddp_stream::Errno;

use super::framed::Framed;
use super::plain::Plain;
use super::raw::Raw;
use crate::socket::{self, Care, Held, KindId, Locked, SavedOptions, Settings};

/// One of our sockets, held for the length of a call, as the calls of the program meet it.
///
/// An `Errno` is what the program is told; [`Errno::PLAIN`] leads to the C library.
pub trait Kind: Begin + Readiness + Close {
    /// Returns a socket that is no longer TCP's alone, for a call that moves octets or waits for
    /// them.
    ///
    /// # Errors
    /// What each such call answers instead.
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno>
    where
        Self: Sized;

    /// Returns the socket.
    fn held(&self) -> &Held;

    /// Returns the number that the call names.
    fn fd(&self) -> c_int;

    /// `recv` and its like.
    ///
    /// # Errors
    /// As of the C library's.
    fn recv(&self, _pieces: &mut [IoSliceMut<'_>], _flags: c_int) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// `send` and its like.
    ///
    /// # Errors
    /// As of the C library's.
    fn send(&self, _pieces: &[IoSlice<'_>], _flags: c_int) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// `sendfile`.
    ///
    /// # Errors
    /// As of the C library's.
    fn send_file(&self, _from: c_int, _offset: Option<&mut i64>, _count: usize) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// As of the C library's.
    fn shutdown(&self, _how: c_int) -> Result<(), Errno> {
        Err(Errno::PLAIN)
    }

    /// `ioctl(FIONREAD)`: octets that can be read.
    ///
    /// # Errors
    /// What a read would answer.
    fn available(&self) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// `ioctl(SIOCATMARK)`: whether what is read next follows urgent octets. Only TCP has them.
    ///
    /// # Errors
    /// What a read would answer.
    fn is_at_mark(&self) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns how many octets of the program's wait for leave to be sent.
    fn unsent(&self) -> usize {
        0
    }

    /// Returns who answers for an option of TCP sockets, once this is more than one.
    fn care(&self, _level: c_int, _name: c_int) -> Care {
        Care::Kernel
    }

    /// Acts on what the program has set of the options that are [`Care::Ours`].
    fn apply(&self, _saved: &SavedOptions) {}

    /// Puts into a copy of the settings what this kind knows better.
    fn describe(&self, _settings: &mut Settings) {}

    /// Returns the private data of the peer's startup frame.
    fn peer_private_data(&self) -> Value {
        Value::octets(&[])
    }

    /// Returns what `SO_ERROR` answers; `None` when the kernel is to be asked.
    fn take_error(&self) -> Option<Errno> {
        None
    }
}

/// How a socket becomes one of a kind: from `connect`, `accept` and `setsockopt`.
pub trait Begin {
    /// The program is about to connect it; [`connected`](Self::connected) follows.
    ///
    /// # Errors
    /// The errno of what stands in the way.
    fn connecting(&self, _to: Option<SocketAddr>) -> Result<(), Errno> {
        Ok(())
    }

    /// The C library's `connect` has come back, with an errno if it failed.
    ///
    /// # Errors
    /// What the program is told.
    fn connected(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        result
    }

    /// `accept` has made it of a connection to a listener of this kind.
    fn accepted(&self) {}

    /// The program has asked for this kind on a connection that is there already.
    ///
    /// # Errors
    /// The errno of what stands in the way.
    fn established(&self, _settings: &mut Locked<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

/// What waits ask of a socket, whose descriptor in the kernel is readable and writable by rules of
/// its own.
pub trait Readiness {
    /// Returns what to ask the kernel for when the program wants to know of `want`.
    fn interest(&self, want: c_short) -> c_short {
        want
    }

    /// Returns what of `want` holds for the program, the kernel having answered `ready`.
    fn revents(&self, ready: c_short, _want: c_short) -> c_short {
        ready
    }

    /// Returns when to call [`revents`](Self::revents) at the latest, though the kernel says
    /// nothing.
    fn deadline(&self, _want: c_short) -> Option<Duration> {
        None
    }

    /// Returns whether urgent octets are this kind's to tell of, and not the kernel's.
    fn tells_urgent(&self) -> bool {
        false
    }

    /// Returns whether nothing but what the kernel tells changes what a wait depends on. One that
    /// is not settled is noted (`unsettled.rs`), to be given its steps.
    fn is_settled(&self) -> bool {
        true
    }

    /// Takes a step that no call of the program is at. Returns whether there was something to do.
    fn step(&self) -> bool {
        false
    }

    /// Returns when to take another step, if octets wait for it.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// How a socket ends: the last number of this process, and what it still owes then.
pub trait Close {
    /// The last number is about to be closed. Returns whether that leaves something to do, which
    /// [`linger`](Self::linger) or the thread of `linger.rs` sees to.
    fn close(&self) -> bool;

    /// Waits as `SO_LINGER` says, with the signals as the program has them. Returns whether nothing
    /// is left to do.
    fn linger(&self) -> bool {
        true
    }

    /// A number that was expected has come to nothing, and was the last: there is none by which to
    /// send.
    fn lost(&self) {}

    /// Returns whether a number is closed at the exit of the process before others are waited for.
    fn ends_at_exit(&self) -> bool {
        false
    }

    /// Brings a closed socket as far as it goes. Returns whether that is all there is to do.
    fn finishes(&self) -> bool {
        true
    }

    /// Returns what to ask the kernel for to [finish](Self::finishes).
    fn interest_to_finish(&self) -> c_short {
        0
    }

    /// Returns the time that a closed socket has to finish.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns for how long the peer has kept a startup waiting.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns whether giving up now loses octets, which the peer is to learn by a reset.
    fn loses_octets(&self) -> bool {
        false
    }

    /// Ends a closed socket: by a reset, or once it is finished or its time is over.
    fn end(&self, _by_reset: bool) {}
}

/// One of our sockets, held for the length of a call: its calls are those of [`Kind`].
#[derive(Debug)]
pub enum Ours {
    /// Ours for an option that was set on it, and no more.
    Plain(Plain),
    /// A byte stream in FPDUs.
    Framed(Framed),
    /// RDMA itself.
    Raw(Raw),
}

impl Ours {
    /// Returns `held`, by its kind, for a call on `fd`.
    #[must_use]
    pub fn new(held: Held, fd: c_int) -> Self {
        Self::of_kind(held.kind(), held, fd)
    }

    /// Returns `held` as one of `kind`, for whoever has the settings and changes that.
    #[must_use]
    pub fn of_kind(kind: KindId, held: Held, fd: c_int) -> Self {
        match kind {
            KindId::Plain => Ours::Plain(Plain { held, fd }),
            KindId::Framed => Ours::Framed(Framed { held, fd }),
            KindId::Raw => Ours::Raw(Raw { held, fd }),
        }
    }
}

impl Deref for Ours {
    type Target = dyn Kind;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Ours::Plain(plain) => plain,
            Ours::Framed(framed) => framed,
            Ours::Raw(raw) => raw,
        }
    }
}

/// Returns the socket under `fd`, if it is ours and no longer TCP's alone.
///
/// # Errors
/// It was to be, and this is what every call on it answers.
#[inline]
pub fn of(fd: c_int) -> Result<Option<Ours>, Errno> {
    match socket::hold(fd) {
        // The kernel knows what a socket answers that was never connected.
        Some(held) if !held.is_still_tcp() => admitted(held, fd).map(Some),
        _ => Ok(None),
    }
}

/// Each kind is asked by its own type, so that the way of a framed socket is a load and a compare.
#[cold]
fn admitted(held: Held, fd: c_int) -> Result<Ours, Errno> {
    match held.kind() {
        KindId::Plain => Plain::admit(held, fd).map(Ours::Plain),
        KindId::Framed => Framed::admit(held, fd).map(Ours::Framed),
        KindId::Raw => Raw::admit(held, fd).map(Ours::Raw),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use rddp_stream::{Options, Role};

    use super::super::store;
    use super::*;
    use crate::socket::Mode;

    /// A connection, of which the first end is ours with these settings.
    fn connection(settings: Settings) -> (TcpStream, TcpStream, Held) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let held = socket::adopt(ours.as_raw_fd(), settings).unwrap();
        (ours, peer, held)
    }

    #[test]
    fn what_calls_meet_is_the_kind_that_the_settings_name() {
        let (ours, _peer, held) = connection(Settings::default());
        let fd = ours.as_raw_fd();
        assert!(of(fd).unwrap().is_none(), "a plain one is the C library's");
        *held.settings() = Settings { mode: Mode::Asked, kind: KindId::Raw, ..Settings::default() };
        assert!(of(fd).unwrap().is_none(), "and so is what is not connected");
        held.settings().mode = Mode::Starting;
        assert_eq!(of(fd).unwrap_err(), Errno::UNSUPPORTED);
        held.settings().kind = KindId::Framed;
        assert_eq!(of(fd).unwrap_err(), Errno(libc::ENOTCONN), "there is no stream");
        held.settings().fail(Errno::TIMED_OUT);
        assert_eq!(of(fd).unwrap_err(), Errno(libc::ETIMEDOUT));
        socket::forget(fd);
    }

    #[test]
    fn a_framed_socket_answers_calls_by_its_stream_until_it_is_of_another_kind() {
        let settings = Settings { mode: Mode::Starting, kind: KindId::Framed, ..Settings::default() };
        let (ours, _peer, held) = connection(settings);
        let fd = ours.as_raw_fd();
        held.set_state(store::create(held.cookie(), &Options::new(Role::Responder)).unwrap());
        let framed = of(fd).unwrap().unwrap();
        assert_eq!(
            framed.recv(&mut [IoSliceMut::new(&mut [0])], libc::MSG_DONTWAIT),
            Err(Errno::WOULD_BLOCK)
        );
        assert_eq!((framed.fd(), framed.held().cookie()), (fd, held.cookie()));
        // As when TCP could not connect, and the program then asks for RDMA.
        held.settings().kind = KindId::Raw;
        assert_eq!(of(fd).unwrap_err(), Errno::UNSUPPORTED);
        socket::forget(fd);
    }

    #[test]
    fn a_kind_without_words_of_its_own_is_a_plain_socket() {
        let (ours, _peer, held) = connection(Settings::default());
        let plain = Ours::new(held, ours.as_raw_fd());
        assert!(matches!(plain, Ours::Plain(_)));
        assert_eq!(plain.recv(&mut [], 0), Err(Errno::PLAIN));
        assert_eq!(plain.send(&[], 0), Err(Errno::PLAIN));
        assert_eq!(plain.care(libc::IPPROTO_TCP, libc::TCP_ULP), Care::Kernel);
        assert_eq!((plain.interest(libc::POLLIN), plain.deadline(libc::POLLIN)), (libc::POLLIN, None));
        assert_eq!(plain.revents(libc::POLLHUP, libc::POLLIN), libc::POLLHUP);
        assert!(plain.is_settled() && !plain.close());
        socket::forget(ours.as_raw_fd());
    }
}

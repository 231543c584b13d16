//! The trait that each kind of sockets implements, and the enum of all kinds.
//!
//! The default methods of the traits answer as for a plain TCP socket: the call goes to the C
//! library, with nothing to add.

use std::ffi::{c_int, c_short};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use rddp_real::Value;
use rddp_rnic::KernelCounts;
use rddp_stream::sdp::Messages;
use rddp_stream::{Errno, Octets, SdpInfo, Sends};

use super::device::Device;
use super::framed::Framed;
use super::plain::Plain;
use super::raw::Raw;
use crate::socket::{self, Care, Held, KindId, Locked, Settings};

/// A socket of ours, held for the length of a call: the calls that a program makes on it.
///
/// An `Errno` is the error for the program; [`Errno::PLAIN`] sends the call to the C library.
pub trait SocketKind: Begin + Readiness + Close {
    /// Returns the socket, which has left plain TCP, for a call that moves octets or waits for
    /// them.
    ///
    /// # Errors
    /// The error of each such call, if the socket is of no use.
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno>
    where
        Self: Sized;

    /// Returns the socket.
    fn held(&self) -> &Held;

    /// Returns the number that the call names.
    fn fd(&self) -> c_int;

    /// Makes `recv` and similar calls.
    ///
    /// # Errors
    /// As of the C library's.
    fn recv(&self, _pieces: &mut [IoSliceMut<'_>], _flags: c_int) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// Makes `send` and similar calls.
    ///
    /// # Errors
    /// As of the C library's.
    fn send(&self, _pieces: &[IoSlice<'_>], _flags: c_int) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// Returns whether a send of so many octets that is under way between calls may lend its memory
    /// to the peer.
    fn lends(&self, _octets: usize) -> bool {
        false
    }

    /// Lends the memory of such sends until there are no more. Returns whether the next octets are
    /// to be sent by copies.
    ///
    /// # Errors
    /// Those octets cannot be sent.
    fn lend(&self, _sends: &mut dyn Sends<'_>) -> Result<bool, Errno> {
        Ok(true)
    }

    /// Notes that receives of so many octets wait that are under way between calls.
    fn offer(&self, _room: usize) {}

    /// Makes `sendfile`.
    ///
    /// # Errors
    /// As of the C library's.
    fn send_file(&self, _from: c_int, _offset: Option<&mut i64>, _count: usize) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// Makes `shutdown`.
    ///
    /// # Errors
    /// As of the C library's.
    fn shutdown(&self, _how: c_int) -> Result<(), Errno> {
        Err(Errno::PLAIN)
    }

    /// Returns the number of octets that can be read: `ioctl(FIONREAD)`.
    ///
    /// # Errors
    /// The error that a read would have.
    fn available(&self) -> Result<usize, Errno> {
        Err(Errno::PLAIN)
    }

    /// Returns whether the next octets to read follow urgent ones: `ioctl(SIOCATMARK)`. Only plain
    /// TCP has urgent octets.
    ///
    /// # Errors
    /// The error that a read would have.
    fn is_at_mark(&self) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns how many octets of the program's wait because the stream may not send them yet.
    fn unsent(&self) -> usize {
        0
    }

    /// Returns the party that answers for an option of TCP sockets, once the socket has left plain
    /// TCP.
    fn care(&self, _level: c_int, _name: c_int) -> Care {
        Care::Kernel
    }

    /// Acts on the program's values of the options that are [`Care::Ours`], and of the thresholds.
    fn apply(&self, _settings: &Settings) {}

    /// Reserves memory that the process cannot get once it has given up most system calls.
    fn prepare_to_confine(&self) {}

    /// Returns what the connection tells of SDP, once it is up.
    fn sdp_info(&self) -> Option<SdpInfo> {
        None
    }

    /// Returns what was counted of segments that the kernel places; `None` where it places none.
    fn kernel_counts(&self) -> Option<KernelCounts> {
        None
    }

    /// Brings a copy of the settings up to date with the state that this kind keeps itself.
    fn describe(&self, _settings: &mut Settings) {}

    /// Returns the private data of the peer's startup frame.
    fn peer_private_data(&self) -> Value {
        Value::octets(&[])
    }

    /// Returns another socket of the kernel's that has the options which are the kernel's; `None`:
    /// the one that the program names.
    fn kernels(&self) -> Option<c_int> {
        None
    }

    /// Returns the addresses of this end and of the peer, where the kernel's socket has others.
    fn names(&self) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        None
    }

    /// Returns what `SO_ERROR` answers; `None` when the kernel is to be asked.
    fn take_error(&self) -> Option<Errno> {
        None
    }
}

/// The ways in which a socket becomes one of a kind: `connect`, `accept` and `setsockopt`.
pub trait Begin {
    /// Prepares for the program's `connect`; [`connected`](Self::connected) follows.
    ///
    /// # Errors
    /// The error that prevents it.
    fn connecting(&self, _to: Option<SocketAddr>) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes the `connect` itself, to the address that [`connecting`](Self::connecting) was given;
    /// `None`: the C library makes it. [`Errno::PLAIN`]: so it does, and the socket is plain.
    fn connects(&self) -> Option<Result<(), Errno>> {
        None
    }

    /// Makes `listen`.
    ///
    /// # Errors
    /// As of the C library's.
    fn listens(&self, _backlog: c_int) -> Result<(), Errno> {
        Err(Errno::PLAIN)
    }

    /// Makes `accept4`: returns the number of the connection, and the peer's address.
    ///
    /// # Errors
    /// As of the C library's.
    fn accepts(&self, _flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
        Err(Errno::PLAIN)
    }

    /// Goes on after the C library's `connect`, which had this result.
    ///
    /// # Errors
    /// The error for the program.
    fn connected(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        result
    }

    /// Goes on after `accept` has made the socket of a connection to a listener of this kind.
    fn accepted(&self) {}

    /// Begins on a connection that exists already, as the program has asked for this kind.
    ///
    /// # Errors
    /// The error that prevents it.
    fn established(&self, _settings: &mut Locked<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

/// The questions that waits (`poll` and its relatives) ask of a socket. When the kernel's
/// descriptor is readable or writable, the program's socket need not be, and the other way round.
pub trait Readiness {
    /// Returns the events to ask the kernel for when the program waits for `want`.
    fn interest(&self, want: c_short) -> c_short {
        want
    }

    /// Returns the events of `want` that hold for the program, after the kernel has answered
    /// `ready`.
    fn revents(&self, ready: c_short, _want: c_short) -> c_short {
        ready
    }

    /// Returns how long a wait may sleep before it calls [`revents`](Self::revents), though the
    /// kernel reports nothing.
    fn deadline(&self, _want: c_short) -> Option<Duration> {
        None
    }

    /// Returns whether a wait for `want` must be for edges: the last look has left octets in the
    /// kernel that are not what the program waits for, so that a level-triggered wait would return
    /// at once for ever. [`revents`](Self::revents) is called when the socket is registered, and
    /// notes, under the lock with which it looks, that a wait for this is about to sleep.
    fn waits_by_edges(&self, _want: c_short) -> bool {
        false
    }

    /// Returns whether this kind, and not the kernel, reports urgent octets.
    fn tells_urgent(&self) -> bool {
        false
    }

    /// Returns whether only events of the kernel can change the readiness of the socket. A socket
    /// that is not settled is noted (`unsettled.rs`), and [`step`](Self::step) is called for it.
    fn is_settled(&self) -> bool {
        true
    }

    /// Takes a step that no call of the program takes. Returns whether there was something to do.
    fn step(&self) -> bool {
        false
    }

    /// Returns how long to wait before another step, if octets need one.
    fn nap(&self) -> Option<Duration> {
        None
    }
}

/// The end of a socket: after the last number of this process is closed, data may still have to be
/// sent.
pub trait Close {
    /// Closes the socket, before its last number is closed. Returns whether there is something left
    /// to do, which [`linger`](Self::linger) or the thread of `linger.rs` does.
    fn close(&self) -> bool;

    /// Waits as `SO_LINGER` says, with the program's signal mask. Returns whether nothing is left
    /// to do.
    fn linger(&self) -> bool {
        true
    }

    /// Ends a socket whose last number was one that was expected and never came: there is no number
    /// left to send by.
    fn lost(&self) {}

    /// Returns whether the socket is closed at the exit of the process before others are waited
    /// for.
    fn ends_at_exit(&self) -> bool {
        false
    }

    /// Sends and receives as much as is possible now on a closed socket. Returns whether it is
    /// finished.
    fn finishes(&self) -> bool {
        true
    }

    /// Returns the events to ask the kernel for in order to [finish](Self::finishes).
    fn interest_to_finish(&self) -> c_short {
        0
    }

    /// Returns the time that a closed socket has to finish.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how long the peer has not answered a startup.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// Does as much as is possible now towards a close that is not the kernel's: sends the end
    /// behind the queue, reads and drops. Returns how far the two directions have come; the thread
    /// calls again at each event, and closes the socket when the peer's TCP has all and the peer's
    /// end has come, or has not come for a second. `None`: the kernel's close is enough, and
    /// [`finishes`](Self::finishes) tells when it may come.
    fn farewell(&self) -> Option<Farewell> {
        None
    }

    /// Returns the obligation of an open socket that no call of the program may ever meet. After
    /// the call that made it, and without a lock of its own, the kind passes the socket to
    /// `linger::oblige`.
    fn obligation(&self) -> Option<Obligation> {
        None
    }

    /// Meets as much of the [obligation](Self::obligation) as is possible now, without waiting.
    /// The thread of `linger.rs` calls it at each edge of the socket, and when the time is over.
    fn meet_obligation(&self) {}

    /// Returns whether giving up now loses octets, of which the peer must learn by a reset.
    fn loses_octets(&self) -> bool {
        false
    }

    /// Ends a closed socket: by a reset, or in good order once it is finished or its time is over.
    fn end(&self, _by_reset: bool) {}
}

/// Progress of a close that is not the kernel's: see [`Close::farewell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// This end has more to send.
    Sending,
    /// TCP has all that this end sends, its end too. The peer's end has not come.
    Sent,
    /// The peer's end has come too.
    Over,
}

/// An obligation of an open socket: something that the peer waits for, and that this end owes it
/// whether or not the program makes another call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obligation {
    /// The time after which to go on though nothing has happened on the socket.
    pub within: Option<Duration>,
}

/// A socket of ours, held for the length of a call, by its kind. Its calls are those of
/// [`SocketKind`].
#[derive(Debug)]
pub enum Ours {
    /// A TCP socket that is ours only because an option was set on it.
    Plain(Plain),
    /// A byte stream in FPDUs: DDPMODE.
    Framed(Framed<Octets>),
    /// A byte stream in messages of SDP.
    Sdp(Framed<Messages>),
    /// RDMA operations.
    Raw(Raw),
    /// A byte stream of SDP over a device.
    Device(Device),
    /// A kind of tests.
    #[cfg(test)]
    Fake(super::fake::Fake),
}

impl Ours {
    /// Returns `held`, by its kind, for a call on `fd`.
    #[must_use]
    pub fn new(held: Held, fd: c_int) -> Self {
        Self::of_kind(held.kind(), held, fd)
    }

    /// Returns `held` as one of `kind`, for a caller that holds the settings and changes the kind.
    #[must_use]
    pub fn of_kind(kind: KindId, held: Held, fd: c_int) -> Self {
        match kind {
            KindId::Plain => Ours::Plain(Plain { held, fd }),
            KindId::Framed => Ours::Framed(Framed::new(held, fd)),
            KindId::Sdp => Ours::Sdp(Framed::new(held, fd)),
            KindId::Raw => Ours::Raw(Raw { held, fd }),
            KindId::Device => Ours::Device(Device { held, fd }),
            #[cfg(test)]
            KindId::Fake => Ours::Fake(super::fake::Fake::new(held, fd)),
        }
    }
}

impl Deref for Ours {
    type Target = dyn SocketKind;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Ours::Plain(plain) => plain,
            Ours::Framed(framed) => framed,
            Ours::Sdp(framed) => framed,
            Ours::Raw(raw) => raw,
            Ours::Device(device) => device,
            #[cfg(test)]
            Ours::Fake(fake) => fake,
        }
    }
}

/// Returns the socket under `fd`, if it is ours and has left plain TCP.
///
/// # Errors
/// The error of every call on it, if the socket is of no use.
#[inline]
pub fn of(fd: c_int) -> Result<Option<Ours>, Errno> {
    match socket::hold(fd) {
        // The kernel knows the answers of a socket that was never connected.
        Some(held) if !held.is_still_tcp() => admitted(held, fd).map(Some),
        _ => Ok(None),
    }
}

/// Admits a socket by its kind, out of the way of calls on descriptors that are not ours. Each type
/// is asked directly, so that a framed socket costs a load and a compare.
#[cold]
fn admitted(held: Held, fd: c_int) -> Result<Ours, Errno> {
    match held.kind() {
        KindId::Plain => Plain::admit(held, fd).map(Ours::Plain),
        KindId::Framed => Framed::admit(held, fd).map(Ours::Framed),
        KindId::Sdp => Framed::admit(held, fd).map(Ours::Sdp),
        KindId::Raw => Raw::admit(held, fd).map(Ours::Raw),
        KindId::Device => Device::admit(held, fd).map(Ours::Device),
        #[cfg(test)]
        KindId::Fake => super::fake::Fake::admit(held, fd).map(Ours::Fake),
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

    /// Makes a connection whose first end is a socket of ours with these settings.
    fn connection(settings: Settings) -> (TcpStream, TcpStream, Held) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let held = socket::adopt(ours.as_raw_fd(), settings).unwrap();
        (ours, peer, held)
    }

    #[test]
    fn calls_go_to_the_kind_in_the_settings() {
        let (ours, _peer, held) = connection(Settings::default());
        let fd = ours.as_raw_fd();
        assert!(of(fd).unwrap().is_none(), "calls on a plain socket go to the C library");
        *held.settings() = Settings { mode: Mode::Asked, kind: KindId::Raw, ..Settings::default() };
        assert!(of(fd).unwrap().is_none(), "so do calls on one that is not connected");
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
        // As after a failed `connect`, when the program then asks for RDMA.
        held.settings().kind = KindId::Raw;
        assert_eq!(of(fd).unwrap_err(), Errno::UNSUPPORTED);
        socket::forget(fd);
    }

    #[test]
    fn a_kind_without_methods_of_its_own_answers_as_a_plain_socket() {
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

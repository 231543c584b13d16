//! A byte stream in FPDUs over the program's own TCP socket (MPA, DDP, RDMAP; RFC 5044, 5041,
//! 5040).
//!
//! A [`Stream`] is made for one call and dropped after it: a descriptor, the [`State`] that all
//! holders of the socket share, and the C library's functions. There is no thread, no hidden
//! descriptor and no private protocol. A write is one Send or several; a read takes their octets in
//! order. The pure crates run in the calling thread, and the kernel's socket decides readiness, so
//! that `poll`, `epoll`, `dup`, `fork` and `exec` go on working.
//!
//! | call of the program | here | answers |
//! |---|---|---|
//! | `connect` | [`Stream::greet`] once TCP is up; or [`Stream::start`], which waits | [`Errno::PLAIN`], or why not |
//! | `accept` | nothing: the startup is done by the first call or wait | |
//! | `read`, `recv*`, `readv` | [`Stream::recv`] | octets, 0 at the end |
//! | `write`, `send*`, `writev` | [`Stream::send`] | octets that are TCP's business now |
//! | `sendfile` | [`Stream::send_file`] | the same |
//! | `shutdown` | [`Stream::shutdown`] | |
//! | `close` of the last holder | [`Stream::finish`] | whether all that was owed is with TCP |
//! | `poll`, `select`, `epoll_wait` | [`Stream::interest`] before, [`Stream::revents`] after, [`Stream::deadline`] | events |
//! | `prctl(PR_SET_SECCOMP)` | [`confine`]; [`Base::holds_octets`] before each wait from then on | |
//! | `ioctl(FIONREAD)` | [`Stream::available`] | octets that a read would give |
//! | `getsockopt(DDPMODE)` | [`State::phase`], [`State::ended`] | how far, and why not further |
//!
//! No call that moves octets allocates: it may be one of a signal handler that has interrupted
//! `malloc`.
//!
//! Every call returns [`Errno::PLAIN`] when the connection stays plain TCP; the caller then makes
//! the C library's call. Flow control is TCP's window: a receiver takes nothing out of the kernel
//! that the program has not asked for.
#![deny(unsafe_code)]

mod at_once;
mod available;
mod base;
mod buffers;
mod caller;
mod closing;
mod directly;
mod duties;
mod early;
mod ended;
mod errno;
mod fail;
mod file;
mod io;
mod kept;
mod kicks;
mod kind;
mod locks;
mod options;
pub mod ours;
mod owed;
mod partial;
mod patience;
mod ready;
mod rooms;
mod rx;
pub mod sdp;
mod settings;
pub mod shm;
mod shown;
mod sink;
mod sleepers;
mod startup;
mod state;
mod sys;
pub mod tcp_state;
mod train;
mod tx;
mod unload;
mod wait;

use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::time::Duration;

pub use base::Base;
pub use caller::Caller;
pub use ended::{Ended, Why};
pub use errno::Errno;
pub use kept::Linger;
pub use kind::Kind;
pub use options::{Gather, Options, Plain, PrivateData, Role};
pub use patience::Patience;
pub use rddp_octets::Plain as Octets;
pub use rddp_sdp::wire::Mode as SdpMode;
use sdp::AskedFormat;
pub use sdp::{Copies, Format, Leaving, Recall, SdpInfo, SdpOptions, Sends};
pub use shown::{Both, Shown};
pub use state::{Condition, Phase, State};
pub use sys::lent;
pub use sys::{
    Calls, ConfinedTable, EdgeSet, EpollTable, FileTable, Found, Known, OwnTable, Process, SameErrno,
    SharedState, Slots, Table, Uncancelled, confine, expect_children, forget_children, forget_edges_of,
    forget_inherited_sets, forget_left, is_confined, join_children, leave_all, leave_closed, map_all,
    remove_unused, sink_pieces, source_pieces,
};
pub use sys::{handlers_restart, raise_sigpipe, shown as shown_streams};

use sdp::fields;

/// A framed stream of plain octets, for the length of a call.
///
/// ```
/// use std::io::{IoSlice, IoSliceMut};
/// use std::net::{TcpListener, TcpStream};
/// use std::os::fd::AsRawFd;
///
/// use rddp_stream::{Calls, Options, Role, SharedState, Stream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let active = TcpStream::connect(listener.local_addr()?)?;
/// let (passive, _) = listener.accept()?;
///
/// let echo = std::thread::spawn(move || {
///     let (state, calls) = (SharedState::anonymous(&Options::new(Role::Responder)).unwrap(), Calls::libc());
///     let stream = Stream::new(passive.as_raw_fd(), &state, &calls).unwrap();
///     let mut octets = [0; 64];
///     let count = stream.recv(&mut [IoSliceMut::new(&mut octets)], 0).unwrap();
///     stream.send(&[IoSlice::new(&octets[..count])], 0).unwrap();
/// });
///
/// let (state, calls) = (SharedState::anonymous(&Options::new(Role::Initiator))?, Calls::libc());
/// let stream = Stream::new(active.as_raw_fd(), &state, &calls)?;
/// stream.send(&[IoSlice::new(b"in a Send")], 0)?;
/// let mut octets = [0; 64];
/// let count = stream.recv(&mut [IoSliceMut::new(&mut octets)], 0)?;
/// assert_eq!(&octets[..count], b"in a Send");
/// echo.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Stream<'a> = Framed<'a, Octets>;

/// A framed stream of one [`Kind`], for the length of a call.
#[derive(Clone, Copy, Debug)]
pub struct Framed<'a, K: Kind> {
    base: Base<'a>,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Deref for Framed<'a, K> {
    type Target = Base<'a>;

    #[inline(always)]
    fn deref(&self) -> &Base<'a> {
        &self.base
    }
}

impl<'a, K: Kind> Framed<'a, K> {
    /// Returns the stream on `fd`, a connected (or connecting) TCP socket, with its state.
    ///
    /// # Errors
    /// `EINVAL`: the state is one of another kind.
    #[inline]
    pub fn new(fd: RawFd, state: &'a State, calls: &'a Calls) -> Result<Self, Errno> {
        let is_its = state.asked.has_messages == u8::from(K::HAS_MESSAGES);
        let base = Base::new(fd, state, calls);
        if is_its { Ok(Self { base, kind: PhantomData }) } else { Err(Errno::INVALID) }
    }

    /// Returns this stream for a call whose maker wants to know of sleeps.
    #[must_use]
    pub fn called_by(self, caller: &'a dyn Caller) -> Self {
        Self { base: self.base.called_by(caller), kind: PhantomData }
    }

    /// Sends this end's startup frame if it is the initiator, and does what else can be done
    /// without waiting. `true`: the startup is over.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub fn greet(&self) -> Result<bool, Errno> {
        self.establish()
    }

    /// Does what can be done without waiting: for the startup, and to send what is owed to TCP.
    /// Takes no octets of the program.
    ///
    /// An error of the connection is left to the program's next call.
    pub fn step(&self) {
        let stepped = self.establish().and_then(|up| {
            if up && !self.has_leave_to_send()? {
                return Ok(());
            }
            K::nudge(self);
            self.pay_if_owing().map(drop)
        });
        if let Err(error) = stepped {
            self.remember(error);
        }
    }

    /// Waits until the startup is over, until `timeout`, or until the startup's own time is over.
    ///
    /// # Errors
    /// `EAGAIN` after `timeout`; [`Errno::PLAIN`]; the reason why there is no connection.
    pub fn start(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        let patience = patience::Patience::new(false, timeout);
        while !self.establish()? {
            self.wait_in_any_case(libc::POLLIN, &patience)?;
        }
        Ok(())
    }

    /// Reserves the blocks that a process cannot get once it has given up the system calls for it.
    pub fn prepare_to_confine(&self) {
        self.state.sleepers.expect_silence();
        if let Ok(mut rx) = self.state.rx.lock() {
            let _ = rx.kept_mut();
            K::prepare_to_confine(&mut rx);
        }
        if let Ok(mut tx) = self.state.tx.lock() {
            let _ = tx.prepare_to_owe(buffers::MOST_OWED);
        }
    }
}

//! Options of a TCP socket that a framed stream acts on itself, because the kernel's would act on
//! the FPDUs.
//!
//! `TCP_NODELAY` and `TCP_CORK` would cut or hold back FPDUs. `SO_RCVLOWAT` is set by the stream to
//! hide an FPDU that has not all arrived. The time-outs are meant for one call of the program,
//! which makes several of the kernel's. So the program's values are kept here.

use std::ffi::c_int;
use std::time::Duration;

use libc::{SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, TCP_CORK, TCP_NODELAY};
use rddp_real::{self as real, Value};
use rddp_stream::Errno;

/// The program's values of the options that a stream acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedOptions {
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `SO_RCVLOWAT`, at least 1.
    pub rcvlowat: c_int,
    /// `SO_RCVTIMEO` in seconds and microseconds; zero: no limit.
    pub rcvtimeo: Timeout,
    /// `SO_SNDTIMEO`.
    pub sndtimeo: Timeout,
    /// The kernel's options are the stream's: see [`store`](Self::store).
    stored: bool,
}

/// A time-out as `struct timeval` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeout {
    /// Seconds.
    pub sec: i64,
    /// Microseconds, below a million.
    pub usec: i64,
}

/// A time-out that no program asks for, which marks a framed socket: about 17 months.
const FRAMED: Timeout = Timeout { sec: 44_440_444, usec: 0 };

impl SavedOptions {
    /// The values of a fresh socket.
    pub const DEFAULT: SavedOptions = SavedOptions {
        nodelay: false,
        cork: false,
        rcvlowat: 1,
        rcvtimeo: Timeout { sec: 0, usec: 0 },
        sndtimeo: Timeout { sec: 0, usec: 0 },
        stored: false,
    };

    /// Reads the values that the program has set on the kernel's socket before it became ours.
    pub fn of(fd: c_int) -> SavedOptions {
        let on = |name| real::int_option(fd, libc::IPPROTO_TCP, name).is_some_and(|value| value != 0);
        let timeout = |name| {
            let (sec, usec) = real::time_option(fd, SOL_SOCKET, name).unwrap_or_default();
            Timeout { sec, usec }
        };
        SavedOptions {
            nodelay: on(TCP_NODELAY),
            cork: on(TCP_CORK),
            rcvlowat: real::int_option(fd, SOL_SOCKET, SO_RCVLOWAT).unwrap_or(1),
            rcvtimeo: timeout(SO_RCVTIMEO),
            sndtimeo: timeout(SO_SNDTIMEO),
            stored: false,
        }
    }

    /// Moves the values here: on the kernel's socket, the options are the stream's from now on.
    ///
    /// The stream never blocks in a send, so the kernel's `SO_SNDTIMEO` can serve as a mark that
    /// the socket carries FPDUs. The mark lasts as long as the socket, in every process.
    pub fn store(&mut self, fd: c_int) {
        if std::mem::replace(&mut self.stored, true) {
            return;
        }
        real::set_option(fd, SOL_SOCKET, SO_SNDTIMEO, &FRAMED.value());
        if self.rcvtimeo != Timeout::default() {
            real::set_option(fd, SOL_SOCKET, SO_RCVTIMEO, &Timeout::default().value());
        }
        if self.cork {
            real::set_option(fd, libc::IPPROTO_TCP, TCP_CORK, &Value::int(0));
        }
        if self.rcvlowat != 1 {
            real::set_option(fd, SOL_SOCKET, SO_RCVLOWAT, &Value::int(1));
        }
    }

    /// Returns whether [`store`](Self::store) was called for this socket, here or in another
    /// process.
    pub fn is_stored(fd: c_int) -> bool {
        real::time_option(fd, SOL_SOCKET, SO_SNDTIMEO) == Some((FRAMED.sec, FRAMED.usec))
    }

    /// Restores the values on the kernel's socket, which has become a plain one.
    pub fn restore(&mut self, fd: c_int) {
        self.stored = false;
        let tcp = libc::IPPROTO_TCP;
        for (level, name) in [
            (SOL_SOCKET, SO_RCVTIMEO),
            (SOL_SOCKET, SO_SNDTIMEO),
            (SOL_SOCKET, SO_RCVLOWAT),
            (tcp, TCP_NODELAY),
            (tcp, TCP_CORK),
        ] {
            if let Ok(value) = self.get(level, name) {
                real::set_option(fd, level, name, &value);
            }
        }
    }

    /// Sets one of the options, by the kernel's own rules for its value.
    pub fn set(&mut self, level: c_int, name: c_int, octets: &[u8]) -> Result<(), Errno> {
        match (level, name) {
            (SOL_SOCKET, SO_RCVTIMEO) => self.rcvtimeo = Timeout::parse(octets)?,
            (SOL_SOCKET, SO_SNDTIMEO) => self.sndtimeo = Timeout::parse(octets)?,
            (SOL_SOCKET, SO_RCVLOWAT) => match int(octets)? {
                value if value < 0 => self.rcvlowat = c_int::MAX,
                value => self.rcvlowat = value.max(1),
            },
            (libc::IPPROTO_TCP, TCP_NODELAY) => self.nodelay = int(octets)? != 0,
            (libc::IPPROTO_TCP, TCP_CORK) => self.cork = int(octets)? != 0,
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    /// Returns the value of one of the options.
    pub fn get(&self, level: c_int, name: c_int) -> Result<Value, Errno> {
        Ok(match (level, name) {
            (SOL_SOCKET, SO_RCVTIMEO) => self.rcvtimeo.value(),
            (SOL_SOCKET, SO_SNDTIMEO) => self.sndtimeo.value(),
            (SOL_SOCKET, SO_RCVLOWAT) => Value::int(self.rcvlowat),
            (libc::IPPROTO_TCP, TCP_NODELAY) => Value::int(self.nodelay.into()),
            (libc::IPPROTO_TCP, TCP_CORK) => Value::int(self.cork.into()),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        })
    }
}

impl Timeout {
    fn parse(octets: &[u8]) -> Result<Self, Errno> {
        let (sec, rest) = octets.split_first_chunk().ok_or(Errno::INVALID)?;
        let (usec, _) = rest.split_first_chunk().ok_or(Errno::INVALID)?;
        let (sec, usec) = (i64::from_ne_bytes(*sec), i64::from_ne_bytes(*usec));
        if !(0..1_000_000).contains(&usec) {
            return Err(Errno(libc::EDOM));
        }
        // A negative time has passed already; the kernel reads it as no time-out.
        Ok(if sec < 0 { Timeout::default() } else { Timeout { sec, usec } })
    }

    /// Converts to a `Duration`; no time-out is `None`.
    pub fn duration(self) -> Option<Duration> {
        let whole = Duration::from_secs(self.sec.unsigned_abs());
        let all = whole.saturating_add(Duration::from_micros(self.usec.unsigned_abs()));
        (all != Duration::ZERO).then_some(all)
    }

    fn value(self) -> Value {
        Value::octets([self.sec.to_ne_bytes(), self.usec.to_ne_bytes()].as_flattened())
    }
}

fn int(octets: &[u8]) -> Result<c_int, Errno> {
    octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)).ok_or(Errno::INVALID)
}

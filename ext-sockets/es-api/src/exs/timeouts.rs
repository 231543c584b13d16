//! The socket options of the ES-API: how long operations may wait, for each direction of a socket.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::SOL_SOCKET;
use rddp_real::{Errno, Value};

use super::lane::Timeout;
use super::{IS_INITIALISED, engine};
use crate::threads::Direction;

/// `SO_ASYNC_RECV_ORDERED`: receives end in the order of posting; always on here.
const RECV_ORDERED: c_int = 0x4501;
/// `SO_ASYNC_SEND_TIMEOUT`.
const SEND_TIMEOUT: c_int = 0x4502;
/// `SO_ASYNC_RECV_TIMEOUT`.
const RECEIVE_TIMEOUT: c_int = 0x4503;
/// `EXS_TIMEOUT_ONCE`.
const ONCE: i64 = 1;

/// Returns whether [`set_option`] and [`option`] serve this option: the kernel does not know its
/// number, and the program uses the ES-API.
#[inline]
pub fn answers_option(level: c_int, name: c_int) -> bool {
    level == SOL_SOCKET
        && (RECV_ORDERED..=RECEIVE_TIMEOUT).contains(&name)
        && IS_INITIALISED.load(Ordering::Acquire)
}

/// Sets an option of the ES-API (`setsockopt`).
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub fn set_option(fd: c_int, name: c_int, octets: &[u8]) -> Result<(), Errno> {
    let Some(direction) = direction(name) else { return ordered(octets) };
    let timeout = parse(octets)?;
    engine()?.lane(fd, direction)?.set_timeout(timeout);
    Ok(())
}

/// Returns the value of an option of the ES-API (`getsockopt`).
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub fn option(fd: c_int, name: c_int) -> Result<Value, Errno> {
    let Some(direction) = direction(name) else { return Ok(Value::int(1)) };
    let timeout = engine()?.lane(fd, direction)?.timeout();
    let after = timeout.map_or(Duration::ZERO, |timeout| timeout.after);
    let once = i64::from(timeout.is_some_and(|timeout| timeout.is_once)) * ONCE;
    let fields = [after.as_secs() as i64, after.subsec_micros().into(), once];
    Ok(Value::octets(fields.map(i64::to_ne_bytes).as_flattened()))
}

fn direction(name: c_int) -> Option<Direction> {
    match name {
        SEND_TIMEOUT => Some(Direction::Send),
        RECEIVE_TIMEOUT => Some(Direction::Receive),
        _ => None,
    }
}

/// Parses a `struct timeval` or an `exs_timeout_t`, which adds flags. A time of 0 means no limit.
fn parse(octets: &[u8]) -> Result<Option<Timeout>, Errno> {
    let field =
        |index: usize| octets.get(index * 8..)?.first_chunk().map(|octets| i64::from_ne_bytes(*octets));
    let (Some(sec), Some(usec)) = (field(0), field(1)) else { return Err(Errno::INVALID) };
    if !(0..1_000_000).contains(&usec) {
        return Err(Errno(libc::EDOM));
    }
    let flags = field(2).unwrap_or(0);
    if flags & !ONCE != 0 {
        return Err(Errno::INVALID);
    }
    let sec = u64::try_from(sec).map_err(|_| Errno(libc::EDOM))?;
    let after = Duration::from_secs(sec.min(FOR_EVER)) + Duration::from_micros(usec.unsigned_abs());
    Ok((!after.is_zero()).then_some(Timeout { after, is_once: flags == ONCE }))
}

/// Longest time in seconds that counts as a limit; clocks can still add it.
const FOR_EVER: u64 = u32::MAX as u64;

fn ordered(octets: &[u8]) -> Result<(), Errno> {
    match octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)) {
        Some(0 | 1) => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(fields: &[i64]) -> Vec<u8> {
        fields.iter().flat_map(|field| field.to_ne_bytes()).collect()
    }

    #[test]
    fn a_timeout_is_read_with_and_without_flags() {
        let timeout = |after, is_once| Ok(Some(Timeout { after: Duration::from_micros(after), is_once }));
        assert_eq!(parse(&octets(&[1, 5])), timeout(1_000_005, false));
        assert_eq!(parse(&octets(&[0, 7, 0])), timeout(7, false));
        assert_eq!(parse(&octets(&[0, 7, ONCE])), timeout(7, true));
        assert_eq!(parse(&octets(&[0, 0, ONCE])), Ok(None));
        assert!(parse(&octets(&[i64::MAX, 999_999])).is_ok());
    }

    #[test]
    fn an_invalid_timeout_is_refused() {
        assert_eq!(parse(&octets(&[1])), Err(Errno::INVALID));
        assert_eq!(parse(&octets(&[0, 7, 2])), Err(Errno::INVALID));
        for fields in [[0, 1_000_000], [0, -1], [-1, 0]] {
            assert_eq!(parse(&octets(&fields)), Err(Errno(libc::EDOM)));
        }
    }
}

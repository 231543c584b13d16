//! Another file under the numbers of a socket, and the entries of its sets, which the kernel drops
//! with the file that was there.

use std::ffi::c_int;

use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use rddp_real::{self as real, Wanted};
use rddp_stream::Errno;

use super::control::put_anew;
use super::interest::{ONESHOT, entry_of};
use super::watches::{any, watches};
use crate::socket::Held;
use crate::sys::epoll_pool::pool;
use crate::table;

/// Puts the file of `from`, whose cookie this is, under each number of the socket, and makes the
/// entries of the sets that have it anew.
///
/// # Errors
/// The kernel refused a number.
pub fn replace(held: &Held, from: c_int, cookie: u64) -> Result<(), Errno> {
    let is_its = |fd: &c_int| table::is(*fd, held.index());
    let numbers: Vec<c_int> = table::within(0, c_int::MAX).filter(is_its).collect();
    held.set_cookie(cookie);
    numbers.into_iter().try_for_each(|fd| put(from, fd, cookie))
}

fn put(from: c_int, fd: c_int, cookie: u64) -> Result<(), Errno> {
    let here = if any() { watches().of(fd) } else { Default::default() };
    for watch in &here {
        // Where another process has the file too, the kernel would keep the entry.
        let _ = real::control(watch.epoll, EPOLL_CTL_DEL, fd, Wanted { events: 0, data: 0 });
    }
    real::put_under(from, fd)?;
    let Some(pool) = pool() else { return Ok(()) };
    for watch in here {
        let Some(entry) = entry_of(&watch) else { continue };
        let (wanted, is_disarmed) = (entry.wanted(), entry.is_disarmed());
        watches().remove(watch);
        pool.free(watch.key);
        let Ok(anew) = put_anew(pool, watch.epoll, fd, cookie, wanted) else { continue };
        if let Some(entry) = entry_of(&anew).filter(|_| is_disarmed) {
            entry.set_disarmed(true);
            let disarmed = Wanted { events: wanted.events & ONESHOT, data: anew.key.0 };
            let _ = real::control(watch.epoll, EPOLL_CTL_MOD, fd, disarmed);
        }
    }
    Ok(())
}

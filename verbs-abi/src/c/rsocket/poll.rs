//! `rpoll` and `rselect`, over sockets and other descriptors.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, nfds_t, pollfd};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::super::border::silent;
use super::super::cancel::end_if_cancelled;
use super::socket::{LOOK, Phase, Socket, State, find};
use crate::errors::Outcome;

/// Returns which of the wanted events are there, and those that are always told.
fn ready(state: &mut State, wanted: i16) -> i16 {
    let is_failed = state.error.is_some();
    match &mut state.phase {
        Phase::Idle(_) | Phase::Connecting(_) => 0,
        Phase::Failed if is_failed => POLLERR | (wanted & POLLOUT),
        Phase::Failed => POLLHUP,
        Phase::Listening { requests, .. } => {
            if requests.is_empty() {
                0
            } else {
                wanted & POLLIN
            }
        }
        Phase::Connected(connection) => {
            let sendable = connection.sendable() > 0;
            let Some(stream) = &connection.stream else { return 0 };
            let mut found = 0;
            if stream.has_data() || !stream.is_readable() {
                found |= wanted & POLLIN;
            }
            if sendable {
                found |= wanted & POLLOUT;
            }
            // Not before all has been read: rstream takes a peer that has left for a failure.
            if stream.is_gone() && !stream.has_data() {
                found |= POLLHUP;
            }
            if connection.error.is_some() { found | POLLERR } else { found }
        }
    }
}

/// Looks at all sockets of a set, and returns how many entries have events.
fn look(fds: &mut [pollfd], sockets: &[Option<Arc<Socket>>]) -> usize {
    for (fd, socket) in fds.iter_mut().zip(sockets) {
        if let Some(socket) = socket {
            fd.revents = ready(&mut socket.lock(), fd.events);
        }
    }
    fds.iter().filter(|fd| fd.revents != 0).count()
}

/// Has the kernel look at descriptors, for so many milliseconds at most.
fn poll(fds: &mut [pollfd], timeout: c_int) -> Outcome<()> {
    // SAFETY: a slice and its length.
    Errno::result(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as nfds_t, timeout) }).map(drop)
}

/// Sleeps until something happens to one of the descriptors or sockets.
fn sleep(fds: &mut [pollfd], sockets: &[Option<Arc<Socket>>], timeout: c_int) -> Outcome<()> {
    let mine: Vec<_> = sockets.iter().flatten().collect();
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    mine.iter().for_each(|socket| socket.add_sleeper(&bell));
    let watch = |fd: c_int, events| pollfd { fd, events, revents: 0 };
    let mut set = vec![watch(bell.as_fd().as_raw_fd(), POLLIN)];
    let mut channels = Vec::new();
    for socket in &mine {
        if let Some(connection) = socket.lock().connection() {
            connection.cq.arm(false);
            set.push(watch(connection.channel.watch().as_raw_fd(), POLLIN));
            channels.push(connection.channel.clone());
        }
    }
    let others = set.len();
    let is_other = |socket: &Option<Arc<Socket>>| socket.is_none();
    let plain = || sockets.iter().enumerate().filter(move |(_, socket)| is_other(socket)).map(|(at, _)| at);
    set.extend(plain().map(|at| watch(fds[at].fd, fds[at].events)));
    // Other descriptors are looked at in any case.
    let slept = poll(&mut set, if look(fds, sockets) > 0 { 0 } else { timeout });
    for (at, seen) in plain().zip(&set[others..]) {
        fds[at].revents = seen.revents;
    }
    for channel in &channels {
        while channel.next_event().is_some() {}
    }
    mine.iter().for_each(|socket| socket.remove_sleeper(&bell));
    slept
}

fn poll_all(fds: &mut [pollfd], timeout: c_int) -> Outcome<usize> {
    let sockets: Vec<_> = fds.iter().map(|fd| find(fd.fd)).collect();
    let end = u64::try_from(timeout).ok().map(|timeout| Instant::now() + Duration::from_millis(timeout));
    let are_plain = sockets.iter().all(Option::is_none);
    loop {
        fds.iter_mut().for_each(|fd| fd.revents = 0);
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let millis = left.unwrap_or(LOOK).min(LOOK).as_micros().div_ceil(1000) as c_int;
        let found = if are_plain {
            poll(fds, millis)?;
            fds.iter().filter(|fd| fd.revents != 0).count()
        } else {
            sleep(fds, &sockets, millis)?;
            look(fds, &sockets)
        };
        if found > 0 || left == Some(Duration::ZERO) {
            return Ok(found);
        }
        end_if_cancelled();
    }
}

pub(in crate::c) unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let fds = match count {
        0 => &mut [],
        _ if fds.is_null() => return silent(Err(Errno::EFAULT)),
        // SAFETY: the function's contract.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    poll_all(fds, timeout).map_or_else(|error| silent(Err(error)), |count| count as c_int)
}

/// # Safety
/// NULL or a set.
unsafe fn has(set: *const libc::fd_set, fd: c_int) -> bool {
    // SAFETY: promised by the caller.
    !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
}

/// # Safety
/// As the C function says.
unsafe fn select(count: c_int, sets: [*mut libc::fd_set; 3], timeout: c_int) -> Outcome<c_int> {
    let events = [POLLIN, POLLOUT, libc::POLLPRI];
    if count < 0 {
        return Err(Errno::EINVAL);
    }
    let mut fds = Vec::new();
    for fd in 0..count.min(libc::FD_SETSIZE as c_int) {
        // SAFETY: promised by the caller; the number is one that a set has.
        let wanted = |at: usize| if unsafe { has(sets[at], fd) } { events[at] } else { 0 };
        let events = wanted(0) | wanted(1) | wanted(2);
        if events != 0 {
            fds.push(pollfd { fd, events, revents: 0 });
        }
    }
    poll_all(&mut fds, timeout)?;
    let mut found = 0;
    for (at, set) in sets.into_iter().enumerate().filter(|(_, set)| !set.is_null()) {
        // The end of a connection can be read and written.
        let shows = events[at] | if at < 2 { POLLHUP | POLLERR } else { 0 };
        // SAFETY: promised by the caller.
        unsafe { libc::FD_ZERO(set) };
        for fd in fds.iter().filter(|fd| fd.events & events[at] != 0 && fd.revents & shows != 0) {
            // SAFETY: as above.
            unsafe { libc::FD_SET(fd.fd, set) };
            found += 1;
        }
    }
    Ok(found)
}

pub(in crate::c) unsafe extern "C-unwind" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the function's contract.
    let timeout = unsafe { timeout.as_ref() }.map_or(-1, |timeout| {
        timeout.tv_sec.saturating_mul(1000).saturating_add(timeout.tv_usec / 1000).clamp(0, 1 << 30) as c_int
    });
    // SAFETY: as above.
    let done = unsafe { select(count, [read, write, except], timeout) };
    done.unwrap_or_else(|error| silent(Err(error)))
}

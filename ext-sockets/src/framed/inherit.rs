//! Sockets that come from elsewhere: through `fork`, through `exec`, in a message.

use std::cell::RefCell;
use std::ffi::c_int;

use super::store::{self, Found};
use crate::next;
use crate::socket::{self, Locked, Mode, Role, Settings};
use crate::stream;

thread_local! {
    /// Held by the thread that forks, so that in the child nobody is found to have them who is not there.
    static HELD_FOR_FORK: RefCell<Vec<Locked<'static>>> = const { RefCell::new(Vec::new()) };
}

/// A thread is about to fork.
pub fn before_fork() {
    let all = socket::settings_of_all();
    // A thread whose storage is gone forks without.
    let _ = HELD_FOR_FORK.try_with(|held| held.replace(all));
}

/// It has, in the parent and in the child.
pub fn fork_is_over() {
    let _ = HELD_FOR_FORK.try_with(|held| held.take());
}

/// In the child: one holder more of each stream.
pub fn after_fork() {
    fork_is_over();
    let me = std::process::id();
    socket::for_each(|held| {
        if let Some(state) = held.state() {
            state.join(me);
        }
    });
}

/// Looks through what this program has been given by `exec`.
pub fn adopt_open() {
    let before = next::errno();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return next::set_errno(before) };
    let numbers: Vec<c_int> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().for_each(adopt);
    next::set_errno(before);
}

/// `fd` has come in a message, or otherwise from where nothing is known of it.
pub fn received(fd: c_int) {
    socket::forget(fd);
    adopt(fd);
}

fn adopt(fd: c_int) {
    let Some(cookie) = next::cookie(fd) else { return };
    // Another number of it may have been seen before.
    let mut known = None;
    socket::for_each(|held| {
        if held.cookie() == cookie && !held.is_closed() {
            known = Some(held.clone());
        }
    });
    if let Some(held) = known {
        return socket::share(&held, fd);
    }
    match store::find(cookie) {
        Found::Nothing => {}
        Found::Stream(state) => {
            let role = match state.options().role {
                stream::Role::Initiator => Role::Initiator,
                stream::Role::Responder => Role::Responder,
            };
            let settings = Settings { mode: Mode::Starting, role: Some(role), ..Settings::default() };
            if let Some(held) = socket::adopt(fd, settings) {
                held.set_state(state);
            }
        }
        Found::Closed => {
            let mut settings = Settings::default();
            settings.fail(libc::ECONNABORTED);
            socket::adopt(fd, settings);
        }
    }
}

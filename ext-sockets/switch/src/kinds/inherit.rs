//! Sockets that come from elsewhere: through `fork`, through `exec`, in a message.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_real as real;
use rddp_stream::{self as stream, Errno, Found, Known, Process, SameErrno, State};

use super::{linger, raw, store, unsettled};
use crate::socket::{self, Held, KindId, Mode, SavedOptions, Settings};
use crate::{process, switch, table, wait};

/// In the child no lock of ours is found to be held by a thread that is not there.
struct Alone {
    /// The program's. Until the fork is over errno says whether it has failed: the C library tells
    /// its handlers nothing else.
    errno: Errno,
    /// The process whose child joins the holders.
    parent: Option<Process>,
    /// The closed sockets. A thread that waits until there are none has this lock and no other.
    line: real::Locked<linger::Line>,
    _forking: real::Forking,
}

thread_local! {
    static FORKING: RefCell<Option<Alone>> = const { RefCell::new(None) };
}

/// Who forked last: in the child, its parent.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A thread is about to fork.
pub fn before_fork() {
    if !socket::were_any() {
        return;
    }
    let errno = Errno::last();
    // The child may be one end of a connection whose other end is ours, and we may be about to wait for the child.
    for _ in 0..STEPS {
        unsettled::progress_other_sockets();
    }
    let parent = (table::any() && process::owns_table()).then(Process::me);
    if let Some(me) = parent {
        FORKS.store(me.word(), Ordering::Relaxed);
        let mut known = Known::default();
        stream::expect_children(me, &mut known);
        for_each_own(|state| state.expect_child_of(me, &mut known));
    }
    wait::forking();
    let alone = real::Forking::here().map(|forking| {
        let line = linger::line();
        Alone { errno, parent, line, _forking: forking }
    });
    real::forget_process();
    // A thread whose storage is gone forks without.
    let is_noted = alone.is_some() && FORKING.try_with(|place| place.replace(alone)).is_ok();
    if is_noted {
        Errno::NONE.set_last();
    }
}

/// Request, Reply, the first FPDU, and that it was seen.
const STEPS: usize = 4;

/// Ends a fork, in the parent, whether it has succeeded or failed.
pub fn fork_is_over() {
    let Some(alone) = FORKING.try_with(RefCell::take).ok().flatten() else { return };
    let error = Errno::last();
    let has_failed = FAILURES.contains(&error);
    if let Some(parent) = alone.parent.filter(|_| has_failed) {
        stream::forget_children(parent);
        for_each_own(|state| state.forget_child_of(parent));
    }
    if has_failed { error } else { alone.errno }.set_last();
}

/// Errnos of a `fork` that failed: those of `fork(2)`, and what filters of system calls say.
const FAILURES: [Errno; 4] =
    [Errno(libc::EAGAIN), Errno(libc::ENOMEM), Errno(libc::ENOSYS), Errno(libc::EPERM)];

/// In the child: one holder more of each stream, and none of the parent's RNIC.
pub fn after_fork() {
    after(join_as_child);
    raw::after_fork();
}

/// In a child that the C library knows nothing of: nobody has expected it.
pub fn after_system_call() {
    after(|| socket::for_each(|held| held.state().into_iter().for_each(|state| state.join(Process::me()))));
}

fn after(join: impl FnOnce()) {
    let alone = FORKING.try_with(RefCell::take).ok().flatten();
    Process::forget_me();
    if alone.is_none() {
        real::is_only_thread();
    }
    if !socket::were_any() {
        return;
    }
    stream::forget_left();
    socket::none_at_work();
    join();
    if let Some(mut alone) = alone {
        alone.errno.set_last();
        // The parent sees to what is in it.
        alone.line.forget();
    }
}

fn join_as_child() {
    if let Some(parent) = Process::of_word(FORKS.load(Ordering::Relaxed)) {
        let me = Process::me();
        stream::join_children(parent, me);
        for_each_own(|state| state.join_child_of(parent, me));
    }
}

/// The states that lie in no file, of which there are few.
fn for_each_own(mut look: impl FnMut(&State)) {
    if store::has_own() {
        socket::for_each(|held| {
            held.state().into_iter().filter(|state| !state.is_in_file()).for_each(&mut look);
        });
    }
}

/// The process is about to give up most system calls: see [`stream::confine`]. What memory its
/// streams may need is had now.
pub fn confine() {
    socket::for_each(|held| held.state().into_iter().for_each(State::prepare_to_confine));
    stream::map_all();
    stream::confine();
}

/// Looks through what this program has been given by `exec`. Whether there are sockets of ours.
pub fn adopt_open() -> bool {
    let _same = SameErrno::here();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let numbers: Vec<c_int> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().for_each(adopt);
    store::leave_closed(|cookie| {
        let mut has = false;
        socket::for_each(|held| has |= held.cookie() == cookie);
        has
    });
    table::any()
}

/// `fd` has come in a message, or otherwise from where nothing is known of it.
pub fn received(fd: c_int) {
    let _same = SameErrno::here();
    socket::forget(fd);
    adopt(fd);
}

fn adopt(fd: c_int) {
    let Some(cookie) = real::cookie(fd) else { return };
    // What a child of `vfork` has been given is not its parent's.
    if !process::owns_table() {
        return;
    }
    if is_known(cookie, fd) {
        return;
    }
    match store::find(cookie) {
        Found::Nothing if SavedOptions::is_stored(fd) => refuse(fd),
        Found::Nothing => switch::tell_unknown(fd),
        Found::State(state) => {
            let role = Some(state.options().role);
            let kind = KindId::Framed;
            let settings = Settings { mode: Mode::Starting, kind, role, ..Settings::default() };
            if let Ok(held) = socket::adopt(fd, settings) {
                held.set_state(state);
            }
        }
        Found::Useless => refuse(fd),
    }
}

/// Returns whether another number of the socket has been seen before; `fd` is one more then. The
/// last may have been closed, with the stream not finished: two sockets with one state would be one
/// holder of it, which left with the first.
fn is_known(cookie: u64, fd: c_int) -> bool {
    let Some(held) = known(cookie) else { return false };
    if !held.is_closed() {
        socket::share(&held, fd);
        return true;
    }
    drop(held);
    // Nobody ends it meanwhile.
    let _line = linger::line();
    known(cookie).inspect(|held| socket::open_again(held, fd)).is_some()
}

fn known(cookie: u64) -> Option<Held> {
    let mut known = None;
    socket::for_each(|held| {
        if held.cookie() == cookie && (!held.is_closed() || held.state().is_some()) {
            known = Some(held.clone());
        }
    });
    known
}

/// A stream that this process cannot go on with.
fn refuse(fd: c_int) {
    let mut settings = Settings { kind: KindId::Framed, ..Settings::default() };
    settings.fail(Errno::ABORTED);
    // Without a place for it nothing more can be done.
    let _ = socket::adopt(fd, settings);
}

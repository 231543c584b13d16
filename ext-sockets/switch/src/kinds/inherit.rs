//! Sockets that this process did not open: those that come through `fork`, `exec` or a message.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use rddp_real as real;
use rddp_stream::{self as stream, Base, Calls, Errno, Found, Known, Process, SameErrno, State};

use super::kind::Ours;
use super::{device, linger, raw, store, unsettled};
use crate::sdp::SdpSettings;
use crate::socket::{self, Held, KindId, Mode, SavedOptions, Settings};
use crate::{exit, process, switch, table, wait};

static CALLS: Calls = real::calls(|| None);

/// In place of a number, for what makes no call on one.
const NO_NUMBER: c_int = -1;

/// A fork in progress, during which the calling thread is alone: it has the locks, so that the
/// child finds none held by a thread that the child does not have.
struct Alone {
    /// The program's errno. Until the fork is over, errno tells whether it has failed: the C
    /// library's fork handlers learn it in no other way.
    errno: Errno,
    /// The process whose child joins the holders.
    parent: Option<Process>,
    /// The closed sockets. A thread that waits until there are none holds this lock and no other.
    line: real::Locked<linger::Line>,
    _forking: real::Forking,
}

thread_local! {
    static FORKING: RefCell<Option<Alone>> = const { RefCell::new(None) };
}

/// The process that forked last: in the child, its parent.
static FORKER: AtomicU64 = AtomicU64::new(0);

/// Prepares for a fork by the calling thread.
pub fn before_fork() {
    if !socket::were_any() {
        return;
    }
    let errno = Errno::last();
    // The child may be one end of a connection whose other end is ours, and this process may be
    // about to wait for the child.
    for _ in 0..STEPS {
        unsettled::progress_other_sockets();
    }
    let parent = (table::any() && process::owns_table()).then(Process::me);
    if let Some(me) = parent {
        FORKER.store(me.word(), Ordering::Relaxed);
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
    // A thread whose thread-local storage is gone forks without this.
    let is_noted = alone.is_some() && FORKING.try_with(|place| place.replace(alone)).is_ok();
    if is_noted {
        Errno::NONE.set_last();
    }
}

/// The steps of a startup: Request, Reply, the first FPDU, and noticing that FPDU.
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

/// The errnos of a `fork` that failed: those of `fork(2)`, and those that filters of system calls
/// return.
const FAILURES: [Errno; 4] =
    [Errno(libc::EAGAIN), Errno(libc::ENOMEM), Errno(libc::ENOSYS), Errno(libc::EPERM)];

/// Takes the child of a `fork` in as a holder of each stream, and gives up the parent's RNIC.
pub fn after_fork() {
    after(join_as_child);
    raw::after_fork();
    device::after_fork();
}

/// Takes in the child of a `fork` by the bare system call, which its parent could not prepare for.
pub fn after_system_call() {
    after(|| socket::for_each(|held| held.state().into_iter().for_each(|state| state.join(Process::me()))));
}

fn after(join: impl FnOnce()) {
    exit::forget();
    let alone = FORKING.try_with(RefCell::take).ok().flatten();
    Process::forget_me();
    if alone.is_none() {
        real::is_only_thread();
    }
    if !socket::were_any() {
        return;
    }
    stream::forget_left();
    wait::forget_inherited_sets();
    socket::none_at_work();
    join();
    if let Some(mut alone) = alone {
        alone.errno.set_last();
        // The parent's thread goes on with the closed sockets.
        alone.line.forget();
    }
    linger::take_up();
}

fn join_as_child() {
    if let Some(parent) = Process::of_word(FORKER.load(Ordering::Relaxed)) {
        let me = Process::me();
        stream::join_children(parent, me);
        for_each_own(|state| state.join_child_of(parent, me));
    }
}

/// Calls `look` with each state that lies in no file. There are few of these.
fn for_each_own(mut look: impl FnMut(&State)) {
    if store::has_own() {
        socket::for_each(|held| {
            held.state().into_iter().filter(|state| !state.is_in_file()).for_each(&mut look);
        });
    }
}

/// Prepares the process for giving up most system calls: see [`stream::confine`]. The memory that
/// its streams may need is allocated now.
pub fn confine() {
    socket::for_each(|held| Ours::new(held.clone(), NO_NUMBER).prepare_to_confine());
    for fd in table::within(0, c_int::MAX) {
        if let Some(held) = socket::hold(fd)
            && let Some(state) = held.state()
        {
            Base::new(fd, state, &CALLS).announce_confinement();
        }
    }
    stream::map_all();
    stream::confine();
}

/// Takes in the sockets that this program has got through `exec`; returns whether any is ours.
pub fn adopt_open() -> bool {
    let _same = SameErrno::here();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let numbers: Vec<c_int> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().for_each(adopt);
    store::release_closed(|cookie| {
        let mut has = false;
        socket::for_each(|held| has |= held.cookie() == cookie);
        has
    });
    table::any()
}

/// Takes in `fd`, which has come in a message, or in another way that the library has not followed.
pub fn received(fd: c_int) {
    let _same = SameErrno::here();
    socket::forget(fd);
    adopt(fd);
}

fn adopt(fd: c_int) {
    let Some(cookie) = real::cookie(fd) else { return };
    // A descriptor that a child of `vfork` has got is not its parent's.
    if !process::owns_table() {
        return;
    }
    if joins_known(cookie, fd) {
        return;
    }
    adopt_unknown(cookie, fd);
    if let Some(held) = socket::hold(fd) {
        // The program before this one may have left an obligation, and its thread is gone.
        linger::oblige(&Ours::new(held, fd));
    }
}

fn adopt_unknown(cookie: u64, fd: c_int) {
    match store::find(cookie) {
        Found::Nothing if SavedOptions::is_stored(fd) => refuse(fd),
        Found::Nothing => switch::tell_unknown(fd),
        Found::State(state) => {
            let options = state.options();
            let (role, kind) = (Some(options.role), KindId::of_stream(&options));
            let sdp = SdpSettings::of_stream(&state);
            // Those of the program that had the socket before are not this one's.
            if kind == KindId::Sdp && !state.is_held_by_others() {
                sdp.set_thresholds(&state);
            }
            let settings = Settings { mode: Mode::Starting, kind, role, sdp, ..Settings::default() };
            if let Ok(held) = socket::adopt(fd, settings) {
                held.set_state(state);
            }
        }
        Found::Useless => refuse(fd),
    }
}

/// Enters `fd` as one more number of its socket, if another is known already; returns whether it
/// is. The last number may have been closed while the stream was not finished: two sockets with
/// one state would count as one holder, which would leave with the first of them.
fn joins_known(cookie: u64, fd: c_int) -> bool {
    let Some(held) = known(cookie) else { return false };
    if !held.is_closed() {
        socket::share(&held, fd);
        return true;
    }
    drop(held);
    // While this lock is held, no other thread ends the closed socket.
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

/// Marks `fd` as a socket with a stream that this process cannot go on with.
fn refuse(fd: c_int) {
    let mut settings = Settings { kind: KindId::Framed, ..Settings::default() };
    settings.fail(Errno::ABORTED);
    // If no place is free for the socket, nothing more can be done.
    let _ = socket::adopt(fd, settings);
}

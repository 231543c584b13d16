//! Where the states of streams lie: files in memory, found by the socket's cookie.
//!
//! The children of `fork` have the mapping; what a process becomes by `exec` has the descriptor alone, asks the kernel for its cookie and
//! finds the file of that name. Only the user that made a file can open it. It goes with the last holder of the socket; those whose
//! holders were all killed are swept away by the next process that makes one.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::next;
use crate::stream::{Errno, Options, SharedState};

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "rddp-";

/// How many this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);
/// Sweeping looks at all there are.
const SWEEP_EVERY: u32 = 4096;

/// What is known of a socket that came from another program.
pub(super) enum Found {
    /// Nothing: a plain one.
    Nothing,
    /// The state of its stream.
    Stream(SharedState),
    /// This user's, but another build's.
    Closed,
}

/// A new state for the socket of this cookie. Where there is no such folder, or no right to it, the state is for this process and its
/// children alone.
pub(super) fn create(cookie: u64, options: &Options) -> Result<SharedState, Errno> {
    let before = next::errno();
    if MADE.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
        sweep();
    }
    let state = match create_file(cookie) {
        Ok(file) => SharedState::in_file(file.as_fd(), options).or_else(|_| {
            remove(cookie);
            SharedState::anonymous(options)
        }),
        Err(_) => SharedState::anonymous(options),
    };
    next::set_errno(before);
    let state = state?;
    state.set_cookie(cookie);
    state.join(next::process_id());
    Ok(state)
}

fn create_file(cookie: u64) -> std::io::Result<File> {
    let path = path(cookie);
    let create = || own().create_new(true).open(&path);
    match create() {
        // A cookie is another socket's only after the system has been started anew.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_ours(&path) => {
            std::fs::remove_file(&path)?;
            create()
        }
        other => other,
    }
}

/// The state of the socket of this cookie, if another process, or what this one was before `exec`, has left one.
pub(super) fn find(cookie: u64) -> Found {
    let path = path(cookie);
    let Ok(about) = std::fs::symlink_metadata(&path) else { return Found::Nothing };
    let user = next::user_id();
    if about.uid() != user {
        return Found::Nothing;
    }
    let opened = own().open(&path).ok().filter(|file| file.metadata().is_ok_and(|of| of.uid() == user));
    match opened.map(|file| SharedState::open(file.as_fd())) {
        Some(Ok(state)) if state.cookie() == cookie => {
            state.join(std::process::id());
            Found::Stream(state)
        }
        _ => Found::Closed,
    }
}

/// Cookies, and since when their files have no holder.
pub(super) type Left = VecDeque<(u64, Instant)>;

static LEFT: Mutex<Left> = Mutex::new(VecDeque::new());
/// How long such a file stays. A child that `vfork` or `posix_spawn` made holds the socket from its `exec` on, and cannot say so before the
/// new program has begun.
const GRACE: Duration = Duration::from_secs(30);
const MANY_LEFT: usize = 256;
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The last holder that is known goes.
pub(super) fn leave(cookie: u64) {
    let mut left = left();
    left.push_back((cookie, Instant::now()));
    while left.len() > MANY_LEFT || left.front().is_some_and(|(_, since)| since.elapsed() > GRACE) {
        left.pop_front().into_iter().for_each(|(cookie, _)| remove_unheld(cookie));
    }
}

/// The process exits.
pub(super) fn leave_all() {
    let mut left = left();
    left.drain(..).for_each(|(cookie, _)| remove_unheld(cookie));
}

pub(super) fn left() -> next::Locked<Left> {
    next::lock(&LEFT)
}

/// Somebody may have come in the meantime.
fn remove_unheld(cookie: u64) {
    if is_left_over(cookie) {
        remove(cookie);
    }
}

fn remove(cookie: u64) {
    let before = next::errno();
    // Where there is none, or somebody else's, it stays so.
    let _ = std::fs::remove_file(path(cookie));
    next::set_errno(before);
}

/// Removes the files of this user whose holders are all gone.
fn sweep() {
    let before = next::errno();
    for entry in std::fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of_ours =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).map(|hex| u64::from_str_radix(hex, 16));
        if let Some(Ok(cookie)) = of_ours
            && is_left_over(cookie)
        {
            remove(cookie);
        }
    }
    next::set_errno(before);
}

fn is_left_over(cookie: u64) -> bool {
    let path = path(cookie);
    if !is_ours(&path) {
        return false;
    }
    let Ok(file) = own().open(&path) else { return false };
    match SharedState::open(file.as_fd()) {
        Ok(state) => !state.is_held(next::is_alive),
        Err(_) => is_given_up(&file),
    }
}

/// Nobody can say who holds what is no state of this build: not filled before its maker was killed, or another build's. A file is needed by
/// those alone who have yet to get the socket by `exec` or in a message.
fn is_given_up(file: &File) -> bool {
    let Ok(about) = file.metadata() else { return false };
    let patience = if about.len() == 0 { GRACE } else { A_DAY };
    about.modified().is_ok_and(|made| made.elapsed().is_ok_and(|age| age > patience))
}

fn is_ours(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file() && about.uid() == next::user_id())
}

fn own() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

fn path(cookie: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{PREFIX}{cookie:x}"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_no_state_is_given_up_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        for (octets, age, over) in [(0, 10, false), (0, 40, true), (64, 40, false), (64, 100_000, true)] {
            let file = File::create(folder.path().join("rddp-1")).unwrap();
            file.set_len(octets).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            assert_eq!(is_given_up(&file), over, "{octets} octets, {age} seconds");
        }
    }
}

//! Files of states: their owners and how long they exist.
//!
//! There is one file for a user and a layout, `rddp-UID-LAYOUT`, which only that user can open; or
//! `rddp-UID-LAYOUT-N` where other users have taken the names before. A process that has it mapped
//! has a shared lock on it, which lives as long as the mapping: a process that gets an exclusive
//! one, and finds no process in it that holds a socket, removes the file.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::layout::{FILE, HEADER, Header, MAX_SLABS, SLAB, longest_file};
use super::process::Process;
use crate::state::MAGIC;

const PREFIX: &str = "rddp-";

/// Returns the path of this user's file for this build: the first name that no other user has
/// taken. Root, which removes other users' files, has one name.
pub(super) fn path(folder: &Path, user: u32) -> PathBuf {
    let first = folder.join(format!("{PREFIX}{user}-{MAGIC:016x}"));
    if user == 0 || is_own_or_free(&first, user) {
        return first;
    }
    let others = (1..NAMES).map(|number| folder.join(format!("{PREFIX}{user}-{MAGIC:016x}-{number}")));
    others.into_iter().find(|path| is_own_or_free(path, user)).unwrap_or(first)
}

/// Number of names that a file may have.
const NAMES: u32 = 16;

fn is_own_or_free(path: &Path, user: u32) -> bool {
    match fs::symlink_metadata(path) {
        Ok(about) => is_own(&about, user),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns whether this is a file that only this user can open.
pub(super) fn is_own(about: &fs::Metadata, user: u32) -> bool {
    about.is_file() && about.uid() == user && about.mode() & 0o077 == 0
}

/// Returns the user whose file has this name.
pub(super) fn user_of(name: &str) -> Option<u32> {
    let (user, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (layout, number) = rest.split_once('-').unwrap_or((rest, "0"));
    u64::from_str_radix(layout, 16).ok()?;
    number.parse::<u32>().ok()?;
    user.parse().ok()
}

/// Opens a file of this user, if it is one; makes it if there is none and `create` says so.
fn open(path: &Path, user: u32, create: bool) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    let about = file.metadata().ok()?;
    is_own(&about, user).then_some(file)
}

fn lock(file: &File, how: libc::c_int) -> bool {
    // SAFETY: takes two integers.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

fn is_under(file: &File, path: &Path) -> bool {
    let of = |about: fs::Metadata| (about.dev(), about.ino());
    let (Ok(this), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    of(this) == of(there)
}

/// A file of states with a locked descriptor: both are mapped.
pub(super) struct Opened {
    pub(super) locked: File,
    pub(super) file: File,
}

/// Opens this user's file with a shared lock, and makes one if `create` says so.
pub(super) fn share(path: &Path, user: u32, create: bool) -> Option<Opened> {
    for _ in 0..TRIES {
        let locked = open(path, user, create)?;
        // Another process may be about to remove it.
        if lock(&locked, libc::LOCK_SH) && is_under(&locked, path) {
            let file = open(path, user, false)?;
            if is_under(&locked, path) && is_under(&file, path) && make_long(&file) {
                return Some(Opened { locked, file });
            }
            drop(locked);
            remove_unused(path, user, None);
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    None
}

const TRIES: u32 = 50;

/// Makes the file as long as it may get, in whole slabs: beyond the limit the kernel would end the
/// process. Returns whether there is room for one slab.
fn make_long(file: &File) -> bool {
    let wanted = FILE.min(longest() / SLAB as u64 * SLAB as u64);
    let Ok(about) = file.metadata() else { return false };
    about.len().max(wanted) >= SLAB as u64 && (about.len() >= wanted || file.set_len(wanted).is_ok())
}

/// Returns the longest file that this process may write (`RLIMIT_FSIZE`).
fn longest() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives until the call returns.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// Returns how long a file of `slabs` slabs may become: see [`longest_file`]. `None`: this process
/// does not see the file's folder.
pub(super) fn may_have(path: &Path, slabs: usize) -> Option<u64> {
    let folder = CString::new(path.parent()?.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zero is a valid value.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a nul; `about` lives until the call returns.
    if unsafe { libc::statfs(folder.as_ptr(), &raw mut about) } < 0 {
        return None;
    }
    let free = (about.f_bavail as u64).saturating_mul(about.f_bsize as u64);
    Some(longest_file((slabs * SLAB) as u64, free))
}

/// Allocates a slab of the file, on kernels before 5.14.
pub(super) fn allocate(path: &Path, user: u32, slab: usize) -> bool {
    let Some(file) = open(path, user, false) else { return false };
    // Not beyond the file's end, where there may be a limit.
    if file.metadata().map_or(0, |about| about.len()) < ((slab + 1) * SLAB) as u64 {
        return false;
    }
    let (at, len) = ((slab * SLAB) as libc::off_t, SLAB as libc::off_t);
    // SAFETY: takes three integers.
    unsafe { libc::posix_fallocate(file.as_raw_fd(), at, len) == 0 }
}

/// Removes the file if no process has it mapped and no live process holds a socket whose state is
/// in it. `me` is not counted.
pub(super) fn remove_unused(path: &Path, user: u32, me: Option<Process>) {
    let Some(file) = open(path, user, false) else { return };
    if lock(&file, libc::LOCK_EX) && is_under(&file, path) && !has_holders(&file, me) {
        let _ = fs::remove_file(path);
    }
}

/// Removes such files of this user, and for root of all users; for root also files by which one
/// user keeps another from having any.
pub(super) fn remove_all_unused(folder: &Path, user: u32) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let of = entry.file_name().to_str().and_then(user_of);
        let Some(of) = of.filter(|of| *of == user || user == 0) else { continue };
        if user == 0 && entry.metadata().is_ok_and(|about| about.uid() != of) {
            let _ = fs::remove_file(entry.path());
        } else {
            remove_unused(&entry.path(), of, None);
        }
    }
}

/// Returns whether a socket has a state in this user's file of another build.
pub(super) fn knows(folder: &Path, user: u32, cookie: u64) -> bool {
    let own = path(folder, user);
    let others =
        fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| {
            entry.file_name().to_str().and_then(user_of) == Some(user) && entry.path() != own
        });
    others
        .filter_map(|entry| open(&entry.path(), user, false))
        .any(|file| any_entry(&file, |words| words.first() == Some(&cookie)))
}

/// Returns whether this process is among the first holders of a socket with a state in the file.
pub(super) fn is_held_by(path: &Path, user: u32, process: Process) -> bool {
    open(path, user, false)
        .is_some_and(|file| any_entry(&file, |words| words[0] != 0 && words[2..].contains(&process.word())))
}

fn has_holders(file: &File, me: Option<Process>) -> bool {
    any_entry(file, |words| {
        words[0] != 0
            && words[2..]
                .iter()
                .filter_map(|word| Process::of_word(*word))
                .any(|process| Some(process) != me && process.is_alive())
    })
}

/// Looks at the entries of all slabs of slots, which have the same layout in every build.
fn any_entry(file: &File, mut look: impl FnMut(&[u64]) -> bool) -> bool {
    let mut octets = vec![0; HEADER];
    let (first, words) = (std::mem::offset_of!(Header, entries) / 8, size_of::<super::layout::Entry>() / 8);
    let mut slabs = 1;
    let mut slab = 0;
    while slab < slabs && file.read_exact_at(&mut octets, (slab * SLAB) as u64).is_ok() {
        let all: Vec<u64> = octets.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        if slab == 0 {
            slabs = (all[1] as u32 as usize).min(MAX_SLABS);
        }
        if all[0] == super::layout::OF_SLOTS && all[first..].chunks_exact(words).any(&mut look) {
            return true;
        }
        slab += 1;
    }
    false
}

//! Identity of a process: its ID and the time when it began, since IDs are used again and a zombie
//! keeps its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Errno;

/// A process that holds a socket, or an expected child of it, in one word; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// Bits of a process ID; Linux has none with more (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;
const PID: u64 = (1 << PID_BITS) - 1;
/// Set for an expected child.
const EXPECTED: u64 = 1 << 63;

/// The process that this memory belongs to, once it has been asked for.
static ME: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// Returns the process that this memory belongs to, whatever program it runs: `exec` changes
    /// neither ID nor beginning. A child of `vfork` uses its parent's memory, and sockets that are
    /// held there are held by the parent.
    #[must_use]
    pub fn me() -> Self {
        if let Some(me) = Self::known() {
            return me;
        }
        let me = Self::numbered(std::process::id());
        ME.store(me.0, Ordering::Relaxed);
        me
    }

    fn known() -> Option<Self> {
        Self::of_word(ME.load(Ordering::Relaxed))
    }

    /// Forgets the calling process: in the child of a `fork`, and when the first socket makes the
    /// memory its own.
    pub fn forget_me() {
        ME.store(0, Ordering::Relaxed);
    }

    /// Returns the process that has this ID now.
    #[must_use]
    pub fn numbered(pid: u32) -> Self {
        let since = match life(pid) {
            Life::Lived { since } => since & (u64::MAX >> (PID_BITS + 1)),
            Life::Over | Life::Unknown => 0,
        };
        Self(since << PID_BITS | u64::from(pid) & PID)
    }

    /// Returns the process of this [`word`](Self::word).
    #[must_use]
    pub fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Returns everything that is known of the process in one word; never 0.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns a child of this process that cannot act for itself yet.
    pub(super) const fn child(self) -> Self {
        Self(self.0 | EXPECTED)
    }

    /// Returns the process ID.
    #[must_use]
    pub const fn pid(self) -> u32 {
        (self.0 & PID) as u32
    }

    fn since(self) -> u64 {
        (self.0 & !EXPECTED) >> PID_BITS
    }

    /// Returns whether the process still runs: not a zombie, and not another process with its ID.
    /// For an expected child: whether its parent does.
    #[must_use]
    pub fn is_alive(self) -> bool {
        if Self::known() == Some(Self(self.0 & !EXPECTED)) {
            return true;
        }
        match life(self.pid()) {
            Life::Over => false,
            Life::Lived { since } => self.since() == 0 || self.since() == since,
            Life::Unknown => has_number(self.pid()),
        }
    }
}

/// Processes that were looked up together, and whether they are alive.
#[derive(Debug, Default)]
pub struct Known(Vec<(Process, bool)>);

impl Known {
    /// Returns whether a process is alive; each is asked once, by [`Process::is_alive`].
    pub fn is_alive(&mut self, process: Process) -> bool {
        if let Some((_, is_alive)) = self.0.iter().find(|(known, _)| *known == process) {
            return *is_alive;
        }
        let is_alive = process.is_alive();
        self.0.push((process, is_alive));
        is_alive
    }

    #[cfg(test)]
    pub(super) fn note(&mut self, process: Process, is_alive: bool) {
        self.0.push((process, is_alive));
    }
}

/// State of a process, by `/proc`.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// Nothing runs: there is no such process, or it is a zombie.
    Over,
    /// The process began so many ticks after the system did.
    Lived { since: u64 },
    /// There is no such file: no process, no `/proc`, or one that hides the process.
    Unknown,
}

fn life(pid: u32) -> Life {
    let mut line = [0; LINE];
    match read_stat(pid, &mut line) {
        Ok(count) => parse(&line[..count]).unwrap_or(Life::Over),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Life::Over,
        Err(_) => Life::Unknown,
    }
}

/// Reads as much of `/proc/PID/stat` as there is room for, without the heap: a signal handler may
/// be closing a socket, in the middle of `malloc`.
fn read_stat(pid: u32, line: &mut [u8]) -> io::Result<usize> {
    let mut path = [0; PATH];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/stat")?;
    let left = rest.len();
    let path = std::str::from_utf8(&path[..PATH - left]).map_err(io::Error::other)?;
    File::open(path)?.read(line)
}

/// Octets of `/proc/4294967295/stat`.
const PATH: usize = 21;
/// Octets of 22 fields: a name of 64 octets, and numbers of 20 digits.
const LINE: usize = 1024;

/// Parses the fields behind the name, which may hold anything: state (field 3), threads (20) and
/// beginning (22); see `proc_pid_stat(5)`.
fn parse(line: &[u8]) -> Option<Life> {
    let behind = line.iter().rposition(|octet| *octet == b')')? + 1;
    let mut fields = std::str::from_utf8(&line[behind..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    let since = fields.nth(1)?.parse().ok()?;
    // A process whose first thread has ended goes on with the others.
    let is_over = matches!(state, "X" | "x") || (state == "Z" && threads <= 1);
    Some(if is_over { Life::Over } else { Life::Lived { since } })
}

fn has_number(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 is not sent to any process; the call only checks.
    unsafe { libc::kill(pid, 0) == 0 || Errno::last() == Errno(libc::EPERM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_a_zombie() {
        let me = Process::me();
        assert!(me.is_alive() && me.child().is_alive() && me.since() > 0);
        // SAFETY: the child only sleeps until it is killed.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            loop {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
        }
        let child = Process::numbered(pid.unsigned_abs());
        assert!(child.is_alive() && child != me);
        let another = Process(child.0 + (1 << PID_BITS));
        assert!(!another.is_alive(), "one that began at another time");
        // SAFETY: signals a child of ours that has not been waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            let mut about: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut about, libc::WEXITED | libc::WNOWAIT);
        }
        assert!(has_number(child.pid()) && !child.is_alive(), "a zombie");
        // SAFETY: waits for a child of ours, without a status.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert!(!child.is_alive());
    }

    #[test]
    fn a_name_may_hold_anything() {
        let fields = |state: &str, threads: u32| {
            format!("7 (a) Z (b) {state} 1 1 1 0 -1 4194304 1 1 1 1 1 1 1 1 20 0 {threads} 0 987 1")
        };
        assert_eq!(parse(fields("S", 1).as_bytes()), Some(Life::Lived { since: 987 }));
        assert_eq!(parse(fields("Z", 1).as_bytes()), Some(Life::Over));
        assert_eq!(parse(fields("Z", 3).as_bytes()), Some(Life::Lived { since: 987 }));
        assert_eq!(parse(b"7 (a"), None);
        assert_eq!(parse(b"7 (a) S 1"), None);
    }
}

//! Changes of the process's mappings, for registrations that are kept.
//!
//! The kernel reports each `munmap`, `mremap` and `madvise` of memory that was armed, whoever makes
//! the call: a thread of this module reads the report, and the call returns then and not before.
//! The report is read under the lock of the log, so that who looks into the log behind such a call
//! finds it there. Nothing is done under that lock that could change a mapping itself.
//!
//! There is one watch for the process, for good: a mapping of which reports are due that nobody
//! reads would hold its `munmap` up for ever. `fork` is not the kernel's to report, but the C
//! library's. A child has no watch.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::sys::{UserFault, at_fork};

/// The watch over the process's mappings.
#[derive(Debug)]
pub(crate) struct Watch {
    reports: UserFault,
    process: u32,
    page: usize,
    /// Ranges of pages that are armed, each as often as it was.
    armed: Mutex<Vec<Range<usize>>>,
    log: Mutex<Log>,
}

/// The newest changes, oldest first from `count % LOGGED` on.
#[derive(Clone, Copy, Debug)]
struct Log {
    count: u64,
    changes: [(usize, usize); LOGGED],
}

/// A moment, to ask for the changes since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    changes: u64,
    forks: Forks,
}

/// Forks of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Forks {
    begun: u64,
    over: u64,
}

/// Changes since a moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// These ranges.
    Ranges(Vec<Range<usize>>),
    /// More than is known: a fork, or too many ranges.
    All,
}

/// A range that is armed as long as this value lives.
#[derive(Debug)]
pub(crate) struct Armed {
    watch: &'static Watch,
    pages: Range<usize>,
    /// The moment before.
    pub(crate) since: Moment,
}

impl Watch {
    /// Returns the process's watch; `None` if the kernel has none for it, and in a child of `fork`.
    pub(crate) fn of_process() -> Option<&'static Self> {
        static WATCH: OnceLock<Option<Watch>> = OnceLock::new();
        static BEGUN: OnceLock<bool> = OnceLock::new();
        let watch = WATCH.get_or_init(|| Watch::new().ok()).as_ref().filter(|watch| watch.is_ours())?;
        BEGUN.get_or_init(|| watch.begin().is_ok()).then_some(watch)
    }

    fn new() -> io::Result<Self> {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
        Ok(Watch {
            reports: UserFault::open()?,
            process: std::process::id(),
            page: page.and_then(|page| usize::try_from(page).ok()).unwrap_or(4096),
            armed: Mutex::default(),
            log: Mutex::new(Log { count: 0, changes: [(0, 0); LOGGED] }),
        })
    }

    fn begin(&'static self) -> io::Result<()> {
        at_fork(fork_begins, fork_ends)?;
        // A handler that unmaps armed memory would wait for this thread. Faults are not blocked:
        // the kernel ends the process at one whose signal is.
        let mut mask = SigSet::all();
        [Signal::SIGBUS, Signal::SIGSEGV].into_iter().for_each(|signal| mask.remove(signal));
        let before = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let begun = std::thread::Builder::new().name("rddp-mappings".into()).spawn(|| self.run());
        before.thread_set_mask()?;
        begun.map(drop)
    }

    fn run(&self) {
        loop {
            let mut fds = [PollFd::new(self.reports.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::NONE).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut log = self.log();
            while let Some(range) = self.reports.next() {
                log.add(&range);
            }
        }
    }

    /// Has changes of a range noted, all of which is mapped.
    ///
    /// # Errors
    /// The kernel reports none on it: it is a mapping of a file, or somebody else's to watch.
    pub(crate) fn arm(&'static self, range: &Range<usize>) -> io::Result<Armed> {
        let since = self.now();
        let end = range.end.checked_next_multiple_of(self.page).ok_or(io::ErrorKind::InvalidInput)?;
        let pages = range.start - range.start % self.page..end;
        let mut armed = self.armed();
        self.reports.arm(&pages)?;
        armed.push(pages.clone());
        Ok(Armed { watch: self, pages, since })
    }

    /// Returns the present moment.
    pub(crate) fn now(&self) -> Moment {
        let forks = Forks::now();
        Moment { changes: self.log().count, forks }
    }

    /// Returns what has changed since a moment, which becomes the present one.
    pub(crate) fn changes_since(&self, moment: &mut Moment) -> Changes {
        let (forks, log) = (Forks::now(), *self.log());
        let before = std::mem::replace(moment, Moment { changes: log.count, forks });
        // While a fork is under way, and in the child, nothing that is kept holds.
        if before.forks != forks || forks.begun != forks.over || !self.is_ours() {
            return Changes::All;
        }
        log.since(before.changes)
    }

    fn disarm(&self, pages: &Range<usize>) {
        let mut armed = self.armed();
        if let Some(at) = armed.iter().position(|of| of == pages) {
            armed.swap_remove(at);
        }
        let is_shared = armed.iter().any(|of| of.start < pages.end && pages.start < of.end);
        // A part that stays armed costs its `munmap` a report that means nothing.
        if !is_shared {
            self.reports.disarm(pages);
        }
    }

    /// Returns whether this is the process that made the watch: the reports are on its mappings.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn armed(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn add(&mut self, range: &Range<usize>) {
        self.changes[(self.count % LOGGED as u64) as usize] = (range.start, range.end);
        self.count += 1;
    }

    fn since(&self, before: u64) -> Changes {
        if self.count - before > LOGGED as u64 {
            return Changes::All;
        }
        let change = |n: u64| self.changes[(n % LOGGED as u64) as usize];
        let ranges = (before..self.count).map(change).map(|(start, end)| start..end);
        Changes::Ranges(ranges.collect())
    }
}

impl Forks {
    fn now() -> Self {
        let over = FORKS_OVER.load(Ordering::SeqCst);
        Forks { begun: FORKS_BEGUN.load(Ordering::SeqCst), over }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if self.watch.is_ours() {
            self.watch.disarm(&self.pages);
        }
    }
}

static FORKS_BEGUN: AtomicU64 = AtomicU64::new(0);
static FORKS_OVER: AtomicU64 = AtomicU64::new(0);

extern "C" fn fork_begins() {
    FORKS_BEGUN.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn fork_ends() {
    FORKS_OVER.fetch_add(1, Ordering::SeqCst);
}

/// Changes that are remembered. Who has not looked for longer forgets all that is kept.
const LOGGED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_knows_its_newest_changes_and_that_others_were_before() {
        let mut log = Log { count: 0, changes: [(0, 0); LOGGED] };
        for n in 0..100 {
            log.add(&(n..n + 1));
        }
        assert_eq!(log.since(100), Changes::Ranges(vec![]));
        assert_eq!(log.since(98), Changes::Ranges(vec![98..99, 99..100]));
        let Changes::Ranges(all) = log.since(36) else { panic!("all are known") };
        assert!(all.len() == LOGGED && all[0] == (36..37));
        assert_eq!(log.since(35), Changes::All);
    }
}

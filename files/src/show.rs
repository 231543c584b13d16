//! Progress and results of a transfer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use rddp_command::device::By;
use rddp_command::failure::{Failure, FailureKind, printable_name};
use rddp_command::out::{self, complain, say};
use rddp_command::signals;
use rddp_command::units::{about, rate};
use serde::Serialize;

use super::checksum::Check;

const STYLE: &str = "{prefix} {wide_bar} {percent:>3}% {bytes:>10} {bytes_per_sec:>12} {eta:>4}";
const STREAM_STYLE: &str = "{prefix} {spinner} {bytes:>10} {bytes_per_sec:>12} {elapsed:>4}";
const TREE_STYLE: &str = "{prefix} {spinner} {files:>7} files {bytes:>10} {bytes_per_sec:>12} {elapsed:>4}";

/// A line of progress, shown where standard error is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// The offset at which this transfer began.
    from: u64,
    /// Files of a tree that are at the other end.
    files: Arc<AtomicU64>,
    /// Octets of one file but for those of holes.
    carried: AtomicU64,
}

/// The result of a transfer, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    file: String,
    peer: SocketAddr,
    #[serde(flatten)]
    by: By,
    octets: u64,
    resumed_from: u64,
    /// True if a file of that name was replaced.
    replaced: bool,
    /// The receiver had the file already, by its size and time: nothing was sent.
    unchanged: bool,
    seconds: f64,
    bytes_per_s: f64,
    /// The checksum of the octets.
    checksum: Check,
    /// Empty, unless this is how.
    #[serde(skip_serializing_if = "String::is_empty")]
    sha256: String,
}

/// Facts about a transfer that are known before it begins.
pub(super) struct About {
    pub(super) file: String,
    pub(super) peer: SocketAddr,
    pub(super) by: By,
    pub(super) check: Check,
}

impl Progress {
    pub(super) fn new(name: &str, from: u64, size: u64) -> Self {
        let progress = Self::on(ProgressBar::new(size), STYLE, name, from);
        progress.bar.set_position(from);
        progress.bar.reset_eta();
        progress
    }

    /// Progress of octets whose end nobody knows.
    pub(super) fn of_stream(name: &str) -> Self {
        Self::on(ProgressBar::no_length(), STREAM_STYLE, name, 0)
    }

    /// Progress of a tree, whose end nobody knows either.
    pub(super) fn of_tree(name: &str) -> Self {
        Self::on(ProgressBar::no_length(), TREE_STYLE, name, 0)
    }

    fn on(bar: ProgressBar, style: &str, name: &str, from: u64) -> Self {
        let bar = if out::style().quiet { ProgressBar::hidden() } else { bar };
        let files = Arc::new(AtomicU64::new(0));
        if let Ok(style) = ProgressStyle::with_template(style) {
            let files = files.clone();
            let write = move |_: &ProgressState, line: &mut dyn std::fmt::Write| {
                // A line that cannot be drawn is drawn again soon.
                let _ = write!(line, "{}", files.load(Ordering::Relaxed));
            };
            bar.set_style(style.with_key("files", write));
        }
        bar.set_prefix(printable_name(name));
        Progress { bar, begun: Instant::now(), from, files, carried: AtomicU64::new(0) }
    }

    /// Ends the progress of a tree. Returns how long it took.
    pub(super) fn done(&self) -> Duration {
        self.bar.finish_and_clear();
        self.begun.elapsed()
    }

    /// Counts octets that have moved.
    pub(super) fn moved(&self, octets: usize) {
        self.bar.inc(octets as u64);
    }

    /// Returns how many octets have moved.
    pub(super) fn octets(&self) -> u64 {
        self.bar.position()
    }

    /// Counts files of a tree that are at the other end.
    pub(super) fn has_files(&self, more: u64) {
        self.files.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn at(&self, offset: u64) {
        self.bar.set_position(offset);
    }

    /// Counts octets of one file that are sent or have come: those of holes are not.
    pub(super) fn carries(&self, octets: usize) {
        self.carried.fetch_add(octets as u64, Ordering::Relaxed);
    }

    /// Keeps one file to the user's `limit` of octets a second. Holes take no time.
    pub(super) fn keep_to(&self, limit: Option<u64>) -> Result<(), Failure> {
        self.hold_back(self.from + self.carried.load(Ordering::Relaxed), limit)
    }

    /// Keeps to the user's `limit` of octets a second: sleeps until the octets up to `offset` may
    /// have been transferred.
    pub(super) fn hold_back(&self, offset: u64, limit: Option<u64>) -> Result<(), Failure> {
        let Some(limit) = limit else { return signals::check() };
        let due = Duration::from_secs_f64((offset - self.from) as f64 / limit as f64);
        signals::sleep(due.saturating_sub(self.begun.elapsed()))
    }

    /// Ends the transfer: all `octets` have arrived, with this checksum.
    pub(super) fn finish(self, octets: u64, sha256: String, replaced: bool) -> Finished {
        self.bar.finish_and_clear();
        let took = self.begun.elapsed();
        let carried = self.carried.into_inner();
        Finished { took, from: self.from, octets, carried, sha256, replaced, unchanged: false }
    }
}

/// A transfer that has ended.
pub(super) struct Finished {
    took: Duration,
    from: u64,
    octets: u64,
    /// Octets of this transfer but for those of holes.
    carried: u64,
    sha256: String,
    replaced: bool,
    unchanged: bool,
}

impl Finished {
    /// A transfer of which nothing had to be sent.
    pub(super) fn unchanged(octets: u64) -> Self {
        let took = Duration::ZERO;
        let (sha256, replaced) = (String::new(), false);
        Finished { took, from: octets, octets, carried: 0, sha256, replaced, unchanged: true }
    }

    /// Returns the result of the transfer, in the form in which it is printed.
    pub(super) fn summary(self, about: About) -> Summary {
        let Finished { took, from, octets, carried, sha256, replaced, unchanged } = self;
        let About { file, peer, by, check } = about;
        let seconds = took.as_secs_f64();
        let bytes_per_s = if seconds > 0.0 { (carried as f64 / seconds).round() } else { 0.0 };
        Summary {
            file,
            peer,
            by,
            octets,
            resumed_from: if unchanged { 0 } else { from },
            replaced,
            unchanged,
            seconds,
            bytes_per_s,
            checksum: check,
            sha256,
        }
    }
}

impl Summary {
    /// Prints the result to standard output.
    pub(super) fn print(&self, json: bool) {
        if json { out::json(self) } else { self.lines().iter().for_each(|line| say!("{line}")) }
    }

    /// Prints the result to standard error, for a transfer whose octets go to standard output.
    pub(super) fn complain(&self, json: bool) {
        if json {
            out::json_complaint(self);
        } else {
            self.lines().iter().for_each(|line| complain!("{line}"));
        }
    }

    fn lines(&self) -> Vec<String> {
        let (octets, file) = (about(self.octets), printable_name(&self.file));
        if self.unchanged {
            return vec![format!("{file}: {octets}, unchanged: its size and time are the same at both ends")];
        }
        let (resumed, replaced) = (resumed_text(self.resumed_from), replaced_text(self.replaced));
        let moved = format!("{file}: {octets} in {:.2} s, {}", self.seconds, rate(self.bytes_per_s));
        let moved = format!("{moved}{resumed}{replaced}");
        let checked = match self.checksum {
            Check::Sha256 => Some(format!("sha256 {}", self.sha256)),
            Check::Crc32c | Check::None => None,
        };
        [moved].into_iter().chain(checked).collect()
    }
}

/// Returns a number of files as words.
pub(super) fn count(files: u64) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

/// Returns the part of a result line that says from where a transfer was resumed.
pub(super) fn resumed_text(from: u64) -> String {
    if from == 0 { String::new() } else { format!(", resumed after {}", about(from)) }
}

/// Returns the part of a result line that says that a file was replaced.
pub(super) fn replaced_text(replaced: bool) -> &'static str {
    if replaced { ", replaced the file that was there" } else { "" }
}

/// Adds to the failure of a transfer that the same command resumes it, where that is so. A remedy
/// that it has stays: of a peer that is not there, or is out of step, the same command ends alike.
pub(super) fn resumable(failure: Failure) -> Failure {
    match failure.kind() {
        FailureKind::Interrupted | FailureKind::Peer if failure.how().is_none() => {
            failure.remedy("repeat the command: it goes on where it ended")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_without_a_remedy_is_one_to_repeat() {
        let how = |failure| resumable(failure).how().map(str::to_owned);
        assert!(how(Failure::peer("lost")).unwrap().contains("repeat"));
        assert!(how(Failure::interrupted()).unwrap().contains("repeat"));
        assert_eq!(how(Failure::peer("nobody").remedy("start it")).unwrap(), "start it");
        assert_eq!(how(Failure::failed("disk")), None);
        let out_of_step = how(crate::protocol::out_of_step()).unwrap();
        assert!(out_of_step.contains("same version") && !out_of_step.contains("repeat"), "{out_of_step}");
    }
}

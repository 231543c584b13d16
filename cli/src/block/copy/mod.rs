//! `rddp block copy`: an image from a disk to another.
//!
//! | module | what |
//! |---|---|
//! | `plan` | the pieces, in order |
//! | `engine` | requests under way |
//! | `target` | a file that the copy makes |

mod engine;
mod plan;
mod target;

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rddp_command::failure::{EXIT_CODES, Failure, FailureKind, printable_name};
use rddp_command::out::{self, say};
use rddp_command::units::{about, rate};
use serde::Serialize;

use self::engine::{Copied, Engine};
use self::target::Target;
use super::desk::Desk;
use super::end::End;
use super::place::{Place, Way};

const EXAMPLES: &str = "\
Examples:
  rddp block copy nbd://192.0.2.1/a.img a.img    an export of any NBD server, to a file
  rddp block copy a.img nbd://192.0.2.1/a.img    and back, to one that may be written
  rddp block copy disk.img /dev/sdb              a device that is no smaller
  rddp block copy nvme://192.0.2.1/nqn.2026-01.example:a a.img   a disk of any NVMe target, by RDMA

Holes stay holes, and zeroes become some. At the end all is on the disk. A file that does not exist is made, and has the
name TO.rddp.part until it is complete; a file or disk that exists keeps its size, and what it has behind the copy. If
the copy fails, the exit status is not 0, and a disk that existed is named as written in part.";

/// Copy a disk, which is a file, a block device or a URI, to another
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(super) struct CopyArgs {
    /// The disk to read
    from: String,

    /// The disk to write, no smaller than the other; a file that does not exist is made
    to: String,

    /// Connections to a server that says that it allows for several
    #[arg(short = 'P', long, default_value = "4", value_name = "COUNT")]
    connections: NonZeroUsize,

    #[command(flatten)]
    client: super::ClientArgs,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary<'a> {
    from: &'a str,
    to: &'a str,
    octets: u64,
    /// Octets of them that were holes.
    holes: u64,
    seconds: f64,
    bytes_per_s: f64,
}

impl CopyArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (source, destination) = (Place::parse(&self.from)?, Place::parse(&self.to)?);
        refuse_same(&source, &destination)?;
        let begun = Instant::now();
        let desk = Desk::new()?;
        let mut from = source.open(&desk, self.way(false))?;
        let size = from.export().size;
        let target = match &destination {
            Place::File(path) if !path.exists() => Some(Target::make(path, size)?),
            _ => None,
        };
        let mut to: Box<dyn End> = match &target {
            Some(target) => Box::new(target.open(&desk)?),
            None => destination.open(&desk, self.way(true))?,
        };
        check_sizes(&*from, &*to)?;
        let copied = self.copy(&desk, &mut *from, &mut *to, target.is_some());
        let copied = copied.map_err(|failure| match &target {
            Some(_) => failure,
            None => incomplete(&failure, &self.to),
        })?;
        target.map_or(Ok(()), Target::complete)?;
        self.tell(copied, begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn way(&self, writable: bool) -> Way<'_> {
        Way { writable, connections: self.connections, client: &self.client }
    }

    fn copy(
        &self,
        desk: &Desk,
        from: &mut dyn End,
        to: &mut dyn End,
        is_fresh: bool,
    ) -> Result<Copied, Failure> {
        let bar = progress(from.export().size, out::style().quiet || self.json);
        let mut engine = Engine::new(desk, from, to, is_fresh);
        let ran = engine.run(&mut |octets| bar.set_position(octets));
        bar.finish_and_clear();
        ran.map(|()| engine.copied)
    }

    fn tell(&self, Copied { data, holes }: Copied, seconds: f64) {
        let octets = data + holes;
        let bytes_per_s = octets as f64 / seconds.max(1e-9);
        if self.json {
            let (from, to) = (&self.from, &self.to);
            out::json(&Summary { from, to, octets, holes, seconds, bytes_per_s });
        } else if !out::style().quiet {
            let (from, to) = (printable_name(&self.from), printable_name(&self.to));
            let of_holes =
                if holes == 0 { String::new() } else { format!(" ({} of it holes)", about(holes)) };
            say!("{from} to {to}: {}{of_holes} in {seconds:.2} s, {}", about(octets), rate(bytes_per_s));
        }
    }
}

fn progress(octets: u64, is_hidden: bool) -> ProgressBar {
    let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new(octets) };
    if let Ok(style) =
        ProgressStyle::with_template("{wide_bar} {percent:>3}% {bytes:>10} {bytes_per_sec:>12} {eta:>4}")
    {
        bar.set_style(style);
    }
    bar
}

/// Refuses to copy a file to itself.
fn refuse_same(from: &Place, to: &Place) -> Result<(), Failure> {
    let of = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino(), found.rdev()));
    let (Place::File(from), Place::File(to)) = (from, to) else { return Ok(()) };
    if of(from).is_some() && of(from) == of(to) {
        return Err(Failure::usage(format!("{} and {} are the same file", from.display(), to.display())));
    }
    Ok(())
}

/// Checks that a disk has room for another.
fn check_sizes(from: &dyn End, to: &dyn End) -> Result<(), Failure> {
    let (source, destination) = (from.export(), to.export());
    if destination.size < source.size {
        let cause = format!(
            "{} has {} octets, and {} has room for {}: nothing was written",
            source.name, source.size, destination.name, destination.size
        );
        return Err(
            Failure::failed(cause).remedy("name a disk that is no smaller, or a file that does not exist")
        );
    }
    let block = u64::from(to.limits().block);
    if destination.size != source.size && !source.size.is_multiple_of(block) {
        let cause = format!(
            "{} takes blocks of {block} octets, and {} has {}: nothing was written",
            destination.name, source.name, source.size
        );
        return Err(Failure::failed(cause).remedy("copy it to a file"));
    }
    Ok(())
}

/// Returns a failure that says that the disk has been written in part.
fn incomplete(failure: &Failure, to: &str) -> Failure {
    let cause = match failure.kind() {
        FailureKind::Interrupted => "interrupted".to_owned(),
        _ => failure.to_string(),
    };
    let again = "copy again when this is mended: all of it is written anew";
    let how = failure.how().map_or_else(|| again.to_owned(), |how| format!("{how}; then {again}"));
    Failure::new(failure.kind(), format!("{cause}; {to} is written in part")).remedy(how)
}

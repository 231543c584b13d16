//! `put` and `get` of several files and of trees.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::open;
use nix::sys::stat::Mode;
use rddp_command::device::{By, Choice};
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out::{self, say};
use rddp_command::units::{about, rate};
use serde::Serialize;

use super::arrival::{Arrival, Taken, Top};
use super::asked::{self, Asked};
use super::counts::{Counts, Named};
use super::departure::{Departure, Depth};
use super::exclude::Excluded;
use super::left_out::{LeftOut, What};
use super::pipe::{GetPipe, PutPipe};
use super::record::Left;
use crate::Options;
use crate::checksum::Check;
use crate::files::{FileError, directory};
use crate::partial::Clobber;
use crate::patience::patiently;
use crate::protocol::{MAX_PATH, Share, Terms, ToClient, ToServer, Window, out_of_step};
use crate::remote::{RemoteFile, Server};
use crate::show::{Progress, count, resumable};
use crate::talk::Talk;
use crate::target::STANDARD;
use crate::tasks::Hub;
use crate::token::Token;
use crate::wishes::Wishes;

/// Octets of a file below which their number says more than their octets.
const SHORT: u64 = 64 << 10;

/// Octets of all names that one command may ask for, so that they fit into one message.
const MAX_NAMES: usize = MAX_PATH;

/// The result of a transfer, as `--json` prints it.
#[derive(Serialize)]
struct Summary {
    peer: SocketAddr,
    #[serde(flatten)]
    by: By,
    files: u64,
    /// Files beside them that the receiver had already, by their size and time.
    unchanged: u64,
    octets: u64,
    /// Files that `--no-clobber` keeps, and entries in whose place something else stays.
    kept: u64,
    conflicts: u64,
    /// Entries that were not sent: all, and by their kinds.
    skipped: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<What, u64>,
    /// Files and directories that could not be read.
    failed: u64,
    /// Symbolic links that are there, new or old.
    links: u64,
    /// Entries that the sender does not have: those that were removed, and those that could not be.
    removed: u64,
    not_removed: u64,
    /// Nothing was changed: the others are what would be.
    dry_run: bool,
    seconds: f64,
    bytes_per_s: f64,
    /// The checksum of the octets.
    checksum: Check,
}

/// A command about a tree, which several threads carry out, each on a connection of its own.
struct Command<'a> {
    remote: RemoteFile<'a>,
    recursive: bool,
    options: &'a Options,
    device: Choice,
    excluded: Excluded,
    token: Option<Token>,
    progress: Progress,
}

/// The part of a command that one connection carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    Share(Share),
    /// The end, behind all shares. Nothing is removed where not all could be read.
    Closing {
        all_read: bool,
    },
}

/// The share of one connection that has been moved.
struct Moved {
    peer: SocketAddr,
    by: By,
    counts: Counts,
    left: Left,
    left_out: LeftOut,
    check: Check,
}

pub(crate) fn put(
    locals: &[PathBuf],
    remote: &str,
    recursive: bool,
    options: &Options,
) -> Result<(), Failure> {
    if locals.iter().any(|local| local == Path::new(STANDARD)) {
        return Err(
            Failure::usage("standard input (-) goes alone").remedy("write ./- for a file of this name")
        );
    }
    differ(&locals.iter().map(|local| name_of(local)).collect::<Vec<_>>())?;
    let command = Command::new(RemoteFile::parse(remote)?, recursive, options)?;
    command.carry_out(async |hub, part| command.put(locals, hub, part).await)
}

pub(crate) fn get(
    remotes: &[String],
    local: &Path,
    recursive: bool,
    options: &Options,
) -> Result<(), Failure> {
    if local == Path::new(STANDARD) {
        return Err(Failure::usage("only one file can go to standard output"));
    }
    let (remote, paths) = names(remotes)?;
    differ(&paths.iter().map(|path| asked::name_of(path)).collect::<Vec<_>>())?;
    let command = Command::new(remote, recursive, options)?;
    let place = if options.dry_run { missing(local) } else { made(local) }.map_err(failed)?;
    let got = command.carry_out(async |hub, part| command.get(&paths, (local, place), hub, part).await);
    if got.is_err() && place == Place::New {
        // With something in it, it stays.
        let _ = std::fs::remove_dir(local);
    }
    got
}

impl<'a> Command<'a> {
    fn new(remote: RemoteFile<'a>, recursive: bool, options: &'a Options) -> Result<Self, Failure> {
        let (token, progress) = (options.token()?, Progress::of_tree(remote.path));
        let excluded = Excluded::new(&options.exclude).map_err(Failure::usage)?;
        if options.delete && !recursive {
            return Err(Failure::usage("--delete is for directories").remedy("--recursive, too"));
        }
        let device = remote.device(&options.device)?;
        Ok(Command { remote, recursive, options, device, excluded, token, progress })
    }

    /// Carries the command out, each share of it in a thread, and prints the result.
    fn carry_out(
        &self,
        work: impl AsyncFn(&Rc<Hub>, Part) -> Result<Moved, Failure> + Sync,
    ) -> Result<(), Failure> {
        let of = self.options.parallel;
        let one = |part| {
            let hub = Hub::new(&self.device.open()?)?;
            let moved = || self.progress.octets();
            patiently(self.options.retry, moved, || hub.run(work(&hub, part))?).map_err(resumable)
        };
        let moved = match of {
            1 => vec![one(Part::All)],
            of => std::thread::scope(|scope| {
                let one = &one;
                let shares = (0..of).map(|number| Part::Share(Share { number, of }));
                let threads: Vec<_> = shares.map(|share| scope.spawn(move || one(share))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
            }),
        };
        let mut moved = moved.into_iter().collect::<Result<Vec<_>, _>>()?;
        if of > 1 && self.recursive {
            let all_read = moved.iter().all(|moved| moved.left.failed == 0);
            moved.push(one(Part::Closing { all_read })?);
        }
        let mut left_out = LeftOut::new(self.options.skip_special);
        moved.iter().for_each(|moved| left_out.add(&moved.left_out));
        let mut summary = summary(&moved, &left_out, &self.progress);
        summary.dry_run = self.options.dry_run;
        summary.print(self.options.json, &left_out)
    }

    fn connect(&self, hub: &Rc<Hub>, part: Part) -> Result<(Server, Wishes, Terms), Failure> {
        let options = self.options;
        let server = self.remote.connect(options.asks(self.token.as_ref()), hub)?;
        let (check, again) = (options.check, options.again);
        let share = if let Part::Share(share) = part { Some(share) } else { None };
        let wishes = Wishes {
            links: options.links,
            exclude: options.exclude.clone(),
            delete: options.delete && part != Part::Closing { all_read: false },
            dry_run: options.dry_run,
            no_sync: options.no_sync,
            closing: matches!(part, Part::Closing { .. }),
        };
        Ok((server, wishes, Terms { check, again, share, ..Terms::default() }))
    }

    /// Returns the limit of octets a second of one connection.
    fn limit(&self) -> Option<u64> {
        self.options.limit.map(|limit| (limit / u64::from(self.options.parallel)).max(1))
    }

    async fn put(&self, locals: &[PathBuf], hub: &Rc<Hub>, part: Part) -> Result<Moved, Failure> {
        let (mut server, wishes, terms) = self.connect(hub, part)?;
        let put = self.put_over(&mut server, locals, part, (wishes, terms)).await;
        server.talk.leaving(put).await
    }

    async fn put_over(
        &self,
        server: &mut Server,
        locals: &[PathBuf],
        part: Part,
        (wishes, terms): (Wishes, Terms),
    ) -> Result<Moved, Failure> {
        let (options, path) = (self.options, self.remote.path.to_owned());
        let talk = &mut server.talk;
        let no_clobber = options.no_clobber;
        talk.ask(&ToServer::PutTree { path, no_clobber, wishes: wishes.clone(), terms })?;
        let window = window(talk, options).await?;
        let pipe = PutPipe::new(talk, window, &self.progress, self.limit(), options.timeout)?;
        let depth = Depth { recursive: self.recursive, names_only: false };
        let named = Named::Here { skip_special: options.skip_special };
        let mut departure = Departure::new(pipe, depth, terms, (wishes, self.excluded.clone()), named);
        if !matches!(part, Part::Closing { .. }) {
            for local in locals {
                let shown = local.display().to_string();
                let open = |flags| open(local, flags, Mode::empty());
                departure.add(name_of(local), &shown, locals.len() == 1, open).await.map_err(failed)?;
            }
        }
        if self.recursive && !matches!(part, Part::Share(_)) {
            for local in locals {
                let open = |flags| open(local, flags, Mode::empty());
                departure.close(name_of(local), open).await.map_err(failed)?;
            }
        }
        let (left, left_out, counts) = departure.finish().await.map_err(failed)?;
        let ToClient::Same = talk.hear(options.timeout).await? else { return Err(out_of_step()) };
        talk.close().await;
        Ok(Moved::new(server, terms.check, counts, (left, left_out)))
    }

    async fn get(
        &self,
        paths: &[String],
        (local, place): (&Path, Place),
        hub: &Rc<Hub>,
        part: Part,
    ) -> Result<Moved, Failure> {
        let (is_new, is_missing) = (place == Place::New, place == Place::Missing);
        let dir = if is_missing { above(local) } else { local };
        let top = Top { dir: directory(dir).map_err(failed)?, is_new, is_missing };
        let (mut server, wishes, terms) = self.connect(hub, part)?;
        let got = self.get_over(&mut server, paths, top, (wishes, terms)).await;
        server.talk.leaving(got).await
    }

    async fn get_over(
        &self,
        server: &mut Server,
        paths: &[String],
        top: Top,
        (wishes, terms): (Wishes, Terms),
    ) -> Result<Moved, Failure> {
        let options = self.options;
        let named = Named::Here { skip_special: options.skip_special };
        let clobber = Clobber::unless(options.no_clobber);
        let asked = (wishes.clone(), self.excluded.clone());
        let mut arrival =
            Arrival::new(top, clobber, terms, asked, named, &server.talk.hub).map_err(failed)?;
        arrival.left_out = LeftOut::new(options.skip_special);
        arrival.asked = Asked::of(paths, self.recursive);
        let (paths, recursive) = (paths.to_owned(), self.recursive);
        let talk = &mut server.talk;
        talk.ask(&ToServer::GetTree { paths, recursive, names_only: false, wishes, terms })?;
        let window = window(talk, options).await?;
        let mut pipe = GetPipe::new(talk, window, options.timeout)?;
        let (mut octets, mut kept) = (0, Vec::new());
        let left = loop {
            let chunk = pipe.next(&mut kept).await?;
            octets += chunk.len() as u64;
            self.progress.moved(chunk.len());
            self.progress.hold_back(octets, self.limit())?;
            let talk = &mut *pipe.talk;
            let mut tick = async || talk.say_busy(&ToServer::Busy).await;
            let before = arrival.counts.there();
            let taken = arrival.take(chunk, &mut tick).await.map_err(failed)?;
            self.progress.has_files(arrival.counts.there() - before);
            match taken {
                Taken::More => {}
                Taken::Asked(want) => pipe.talk.say(&ToServer::Want(want))?,
                Taken::All(left) => break left,
            }
        };
        let tick = || talk.say_alive(&ToServer::Busy);
        arrival.finish(tick).await.map_err(failed)?;
        talk.say(&ToServer::Same)?;
        talk.close().await;
        let mut left_out = std::mem::take(&mut arrival.left_out);
        left_out.add_unnamed(left.skipped);
        Ok(Moved::new(server, terms.check, arrival.counts, (left, left_out)))
    }
}

impl Moved {
    fn new(server: &Server, check: Check, counts: Counts, (left, left_out): (Left, LeftOut)) -> Self {
        Moved { peer: server.addr, by: server.by.clone(), counts, left, left_out, check }
    }
}

fn panicked() -> Failure {
    Failure::failed("a thread has panicked")
}

/// Fails if not all could be read.
pub(super) fn all_read(failed: u64) -> Result<(), Failure> {
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Changed, format!("{failed} could not be read, or changed meanwhile"))
        .remedy("see to the names above, and repeat the command: what has arrived is not sent again"))
}

/// Fails if not all could be removed.
fn all_removed(not_removed: u64) -> Result<(), Failure> {
    if not_removed == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!("{not_removed} could not be removed")).remedy("see to the names above"))
}

/// Fails if something else stays in the place of an entry.
fn no_conflict(conflicts: u64) -> Result<(), Failure> {
    if conflicts == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!("{conflicts} are in conflict with what is there"))
        .remedy("move what is in their places, and repeat the command"))
}

async fn window(talk: &mut Talk, options: &Options) -> Result<Window, Failure> {
    match talk.hear(options.timeout).await? {
        ToClient::Tree { window } => Ok(window),
        _ => Err(out_of_step()),
    }
}

/// Returns the name under which a file or directory goes to the other end: none for the contents
/// of a directory, which ends with a slash or dots.
fn name_of(local: &Path) -> &[u8] {
    match local.as_os_str().as_bytes().rsplit(|octet| *octet == b'/').next() {
        None | Some(b"." | b"..") => b"",
        Some(name) => name,
    }
}

/// Fails if two names are the same: one of the two would replace the other.
fn differ(names: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
    let (mut names, mut seen) = (names.iter().map(AsRef::as_ref), HashSet::new());
    match names.find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            let name = String::from_utf8_lossy(twice);
            if name.is_empty() {
                return Err(Failure::usage("the contents of two directories could replace each other")
                    .remedy("use a command for each"));
            }
            Err(Failure::usage(format!("two of them are called {name:?}, and would replace each other"))
                .remedy("use a command for each, with destinations of their own"))
        }
    }
}

/// Returns the server of all these names, and their paths.
fn names(remotes: &[String]) -> Result<(RemoteFile<'_>, Vec<String>), Failure> {
    let remotes = remotes.iter().map(|text| RemoteFile::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let [first, ..] = &remotes[..] else { return Err(Failure::usage("no file is named")) };
    if remotes.iter().any(|other| other.host != first.host) {
        return Err(Failure::usage("all names must be at the same HOST[:PORT]")
            .remedy("use a command for each host; the last name is the local destination"));
    }
    let paths: Vec<String> = remotes.iter().map(|remote| remote.path.to_owned()).collect();
    if paths.iter().map(String::len).sum::<usize>() > MAX_NAMES {
        return Err(Failure::usage(format!("the names have more than {MAX_NAMES} octets"))
            .remedy("name their directory with --recursive, or use several commands"));
    }
    Ok((first.clone(), paths))
}

/// The local directory into which files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    New,
    Old,
    /// A place that would be made, if something was to be changed.
    Missing,
}

/// Makes the local directory into which files go, if need be.
fn made(local: &Path) -> Result<Place, FileError> {
    match nix::unistd::mkdir(local, Mode::from_bits_truncate(0o777)) {
        Ok(()) => Ok(Place::New),
        Err(Errno::EEXIST) => directory(local).map(|_| Place::Old),
        Err(Errno::ENOENT) => Err(FileError::NoDirectory(local.display().to_string())),
        Err(error) => Err(FileError::new(&local.display().to_string(), error)),
    }
}

/// Looks whether the local directory is there. The one above it is.
fn missing(local: &Path) -> Result<Place, FileError> {
    match directory(local) {
        Err(FileError::NoDirectory(_)) => directory(above(local)).map(|_| Place::Missing),
        found => found.map(|_| Place::Old),
    }
}

fn above(local: &Path) -> &Path {
    local.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Turns an error of a local file into a failure.
fn failed(error: FileError) -> Failure {
    error.failure(FailureKind::Failed)
}

/// Adds up what all connections have moved.
fn summary(moved: &[Moved], left_out: &LeftOut, progress: &Progress) -> Summary {
    let sum = |of: fn(&Moved) -> u64| moved.iter().map(of).sum::<u64>();
    let carried = sum(|moved| moved.counts.carried);
    let seconds = progress.done().as_secs_f64();
    Summary {
        peer: moved[0].peer,
        by: moved[0].by.clone(),
        files: sum(|moved| moved.counts.files),
        unchanged: sum(|moved| moved.counts.unchanged),
        octets: sum(|moved| moved.counts.octets),
        kept: sum(|moved| moved.counts.kept),
        conflicts: sum(|moved| moved.counts.conflicts),
        skipped: sum(|moved| moved.left.skipped),
        left_out: left_out.counts(),
        failed: sum(|moved| moved.left.failed),
        links: sum(|moved| moved.counts.links),
        removed: sum(|moved| moved.counts.removed),
        not_removed: sum(|moved| moved.counts.not_removed),
        dry_run: false,
        seconds,
        bytes_per_s: if seconds > 0.0 { (carried as f64 / seconds).round() } else { 0.0 },
        checksum: moved[0].check,
    }
}

impl Summary {
    /// Prints the result. Fails if not all could be sent.
    fn print(&self, json: bool, left_out: &LeftOut) -> Result<(), Failure> {
        let Summary { files, unchanged, kept, conflicts, failed, links, removed, .. } = *self;
        if json {
            out::json(self);
        } else {
            let (octets, seconds, rate) = (about(self.octets), self.seconds, rate(self.bytes_per_s));
            // Of short files it is the number that counts.
            let rate = match files {
                2.. if self.octets / files < SHORT && seconds > 0.0 => {
                    format!("{:.0} files/s", files as f64 / seconds)
                }
                _ => rate,
            };
            let would = if self.dry_run { "would be " } else { "" };
            if self.dry_run {
                say!("{}: {octets} would be sent", count(files));
            } else {
                say!("{}: {octets} in {seconds:.2} s, {rate}", count(files));
            }
            if links > 0 {
                say!("symbolic links: {links}");
            }
            if removed > 0 {
                say!("{removed} {would}removed, which the sender has not");
            }
            if unchanged > 0 {
                say!("{unchanged} unchanged: their size and time are the same at both ends");
            }
            if kept > 0 {
                say!("{kept} kept: they are there already");
            }
            // Where it is a failure, that says it.
            if let (Some(words), Ok(())) = (left_out.words(), left_out.all_sent()) {
                say!("left out: {words}");
            }
        }
        all_read(failed)
            .and_then(|()| no_conflict(conflicts))
            .and_then(|()| all_removed(self.not_removed))
            .and_then(|()| left_out.all_sent())
    }
}

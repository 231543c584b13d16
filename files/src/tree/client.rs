//! `put` and `get` of several files and of trees.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::open;
use nix::sys::stat::Mode;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out::{self, say};
use rddp_command::units::{about, rate};
use rddp_rnic::Rnic;
use serde::Serialize;

use super::arrival::{Arrival, Counts, Taken};
use super::departure::{Departure, Depth, Named};
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

/// Octets of a file below which their number says more than their octets.
const SHORT: u64 = 64 << 10;

/// Octets of all names that one command may ask for, so that they fit into one message.
const MAX_NAMES: usize = MAX_PATH;

/// The result of a transfer, as `--json` prints it.
#[derive(Serialize)]
struct Summary {
    peer: SocketAddr,
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
    token: Option<Token>,
    progress: Progress,
}

/// The share of one connection that has been moved.
struct Moved {
    peer: SocketAddr,
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
    let names = locals.iter().map(|local| last_part(local)).collect::<Result<Vec<_>, _>>()?;
    differ(&names)?;
    let command = Command::new(RemoteFile::parse(remote)?, recursive, options)?;
    command.carry_out(async |hub, share| command.put(locals, hub, share).await)
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
    let last = |path: &String| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    differ(&paths.iter().map(last).collect::<Vec<_>>())?;
    let command = Command::new(remote, recursive, options)?;
    let is_new = made(local).map_err(failed)?;
    let got = command.carry_out(async |hub, share| command.get(&paths, local, hub, share).await);
    if got.is_err() && is_new {
        // With something in it, it stays.
        let _ = std::fs::remove_dir(local);
    }
    got
}

impl<'a> Command<'a> {
    fn new(remote: RemoteFile<'a>, recursive: bool, options: &'a Options) -> Result<Self, Failure> {
        let (token, progress) = (options.token()?, Progress::of_tree(remote.path));
        Ok(Command { remote, recursive, options, token, progress })
    }

    /// Carries the command out, each share of it in a thread, and prints the result.
    fn carry_out(
        &self,
        work: impl AsyncFn(&Rc<Hub>, Option<Share>) -> Result<Moved, Failure> + Sync,
    ) -> Result<(), Failure> {
        let of = self.options.parallel;
        let one = |share| {
            let hub = Hub::new(&Rnic::open()?)?;
            let moved = || self.progress.octets();
            patiently(self.options.retry, moved, || hub.run(work(&hub, share))?).map_err(resumable)
        };
        let moved = match of {
            1 => vec![one(None)],
            of => std::thread::scope(|scope| {
                let one = &one;
                let shares = (0..of).map(|number| Some(Share { number, of }));
                let threads: Vec<_> = shares.map(|share| scope.spawn(move || one(share))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
            }),
        };
        let moved = moved.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut left_out = LeftOut::new(self.options.skip_special);
        moved.iter().for_each(|moved| left_out.add(&moved.left_out));
        summary(&moved, &left_out, &self.progress).print(self.options.json, &left_out)
    }

    fn connect(&self, hub: &Rc<Hub>, share: Option<Share>) -> Result<(Server, Terms), Failure> {
        let server = self.remote.connect(self.options.asks(self.token.as_ref()), hub)?;
        let (check, again) = (self.options.check, self.options.again);
        Ok((server, Terms { check, again, share, ..Terms::default() }))
    }

    /// Returns the limit of octets a second of one connection.
    fn limit(&self) -> Option<u64> {
        self.options.limit.map(|limit| (limit / u64::from(self.options.parallel)).max(1))
    }

    async fn put(&self, locals: &[PathBuf], hub: &Rc<Hub>, share: Option<Share>) -> Result<Moved, Failure> {
        let (options, path) = (self.options, self.remote.path.to_owned());
        let (mut server, terms) = self.connect(hub, share)?;
        let talk = &mut server.talk;
        talk.ask(&ToServer::PutTree { path, no_clobber: options.no_clobber, terms })?;
        let window = window(talk, options).await?;
        let pipe = PutPipe::new(talk, window, &self.progress, self.limit(), options.timeout)?;
        let depth = Depth { recursive: self.recursive, names_only: false };
        let named = Named::Here { skip_special: options.skip_special };
        let mut departure = Departure::new(pipe, depth, terms, named);
        for local in locals {
            let shown = local.display().to_string();
            let name = last_part(local)?;
            let open = |flags| open(local, flags, Mode::empty());
            departure.add(&name, &shown, open).await.map_err(failed)?;
        }
        let (left, left_out, counts) = departure.finish().await.map_err(failed)?;
        let ToClient::Same = talk.hear(options.timeout).await? else { return Err(out_of_step()) };
        talk.close().await;
        Ok(Moved::new(&server, terms.check, counts, (left, left_out)))
    }

    async fn get(
        &self,
        paths: &[String],
        local: &Path,
        hub: &Rc<Hub>,
        share: Option<Share>,
    ) -> Result<Moved, Failure> {
        let options = self.options;
        let top = directory(local).map_err(failed)?;
        let (mut server, terms) = self.connect(hub, share)?;
        let named = Named::Here { skip_special: options.skip_special };
        let clobber = Clobber::unless(options.no_clobber);
        let mut arrival = Arrival::new(top, clobber, terms, named, hub).map_err(failed)?;
        arrival.left_out = LeftOut::new(options.skip_special);
        let (paths, recursive) = (paths.to_owned(), self.recursive);
        let talk = &mut server.talk;
        talk.ask(&ToServer::GetTree { paths, recursive, names_only: false, terms })?;
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
        Ok(Moved::new(&server, terms.check, arrival.counts, (left, left_out)))
    }
}

impl Moved {
    fn new(server: &Server, check: Check, counts: Counts, (left, left_out): (Left, LeftOut)) -> Self {
        Moved { peer: server.addr, counts, left, left_out, check }
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

/// Returns the name under which a file or directory goes to the other end.
fn last_part(local: &Path) -> Result<Vec<u8>, Failure> {
    if let Some(name) = local.file_name() {
        return Ok(name.as_bytes().to_vec());
    }
    // "." and "..": what they are called where they are.
    let whole =
        local.canonicalize().map_err(|error| failed(FileError::new(&local.display().to_string(), error)))?;
    Ok(whole.file_name().map_or_else(Vec::new, |name| name.as_bytes().to_vec()))
}

/// Fails if two names are the same: one of the two would replace the other.
fn differ(names: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
    let (mut names, mut seen) = (names.iter().map(AsRef::as_ref), HashSet::new());
    match names.find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            let name = String::from_utf8_lossy(twice);
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

/// Makes the local directory into which files go, if need be. Returns whether it did.
fn made(local: &Path) -> Result<bool, FileError> {
    match nix::unistd::mkdir(local, Mode::from_bits_truncate(0o777)) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => directory(local).map(|_| false),
        Err(Errno::ENOENT) => Err(FileError::NoDirectory(local.display().to_string())),
        Err(error) => Err(FileError::new(&local.display().to_string(), error)),
    }
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
        files: sum(|moved| moved.counts.files),
        unchanged: sum(|moved| moved.counts.unchanged),
        octets: sum(|moved| moved.counts.octets),
        kept: sum(|moved| moved.counts.kept),
        conflicts: sum(|moved| moved.counts.conflicts),
        skipped: sum(|moved| moved.left.skipped),
        left_out: left_out.counts(),
        failed: sum(|moved| moved.left.failed),
        seconds,
        bytes_per_s: if seconds > 0.0 { (carried as f64 / seconds).round() } else { 0.0 },
        checksum: moved[0].check,
    }
}

impl Summary {
    /// Prints the result. Fails if not all could be sent.
    fn print(&self, json: bool, left_out: &LeftOut) -> Result<(), Failure> {
        let Summary { files, unchanged, kept, conflicts, failed, .. } = *self;
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
            say!("{}: {octets} in {seconds:.2} s, {rate}", count(files));
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
        all_read(failed).and_then(|()| no_conflict(conflicts)).and_then(|()| left_out.all_sent())
    }
}

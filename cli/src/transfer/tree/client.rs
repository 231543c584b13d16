//! `put` and `get` of several files and of trees, and `ls`.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::open;
use nix::sys::stat::Mode;
use serde::Serialize;

use super::arrival::{Arrival, Counts};
use super::departure::{Departure, Depth};
use super::pipe::{GetPipe, PutPipe};
use super::record::{Left, Record};
use crate::failure::{Failure, Kind, printable};
use crate::out::{self, say};
use crate::transfer::files::{FileError, directory};
use crate::transfer::partial::Clobber;
use crate::transfer::protocol::{MAX_PATH, ToClient, ToServer, out_of_step};
use crate::transfer::remote::{Peer, RemoteFile};
use crate::transfer::show::Progress;
use crate::transfer::talk::Talk;
use crate::transfer::target::STDOUT;
use crate::transfer::{Common, LsArgs};
use crate::units::{about, rate};

/// Octets of all names that one command may ask for, so that they fit into one message.
const MAX_NAMES: usize = MAX_PATH;

/// The result of a transfer, as `--json` prints it.
#[derive(Serialize)]
struct Summary {
    peer: SocketAddr,
    files: u64,
    octets: u64,
    /// Entries that are neither files nor directories.
    skipped: u64,
    /// Files and directories that could not be read.
    failed: u64,
    seconds: f64,
    bytes_per_s: f64,
}

pub(in crate::transfer) fn put(
    locals: &[PathBuf],
    remote: &str,
    recursive: bool,
    common: &Common,
) -> Result<(), Failure> {
    let remote = RemoteFile::parse(remote)?;
    let (mut talk, addr) = remote.connect(common.token()?.as_ref(), Peer::WithTrees)?;
    talk.ask(&ToServer::PutTree { path: remote.path.to_owned(), no_clobber: common.no_clobber })?;
    let progress = Progress::of_tree(remote.path);
    let window = window(&mut talk, common)?;
    let pipe = PutPipe::new(&mut talk, window, &progress, common.limit, common.timeout)?;
    let mut departure = Departure::new(pipe, Depth { recursive, names_only: false });
    for local in locals {
        let shown = local.display().to_string();
        let name = last_part(local)?;
        departure.add(&name, &shown, |flags| open(local, flags, Mode::empty())).map_err(failed)?;
    }
    let (left, counts) = departure.finish().map_err(failed)?;
    let ToClient::Same = talk.hear(common.timeout)? else { return Err(out_of_step()) };
    talk.end.close();
    summary(addr, counts, left, &progress).print(common.json)
}

pub(in crate::transfer) fn get(
    remotes: &[String],
    local: &Path,
    recursive: bool,
    common: &Common,
) -> Result<(), Failure> {
    if local == Path::new(STDOUT) {
        return Err(Failure::usage("only one file can go to standard output"));
    }
    let (remote, paths) = names(remotes)?;
    let token = common.token()?;
    let top = made(local).map_err(failed)?;
    let mut arrival = Arrival::new(top, Clobber::unless(common.no_clobber)).map_err(failed)?;
    let (mut talk, addr) = remote.connect(token.as_ref(), Peer::WithTrees)?;
    talk.ask(&ToServer::GetTree { paths, recursive, names_only: false })?;
    let window = window(&mut talk, common)?;
    let progress = Progress::of_tree(remote.path);
    let mut pipe = GetPipe::new(&mut talk, window, common.timeout)?;
    let mut octets = 0;
    let left = loop {
        let chunk = pipe.next()?;
        octets += chunk.len() as u64;
        progress.at(octets);
        progress.hold_back(octets, common.limit)?;
        if let Some(left) = arrival.take(&chunk).map_err(failed)? {
            break left;
        }
    };
    arrival.finish(&mut || talk.say_busy(&ToServer::Busy)).map_err(failed)?;
    talk.say(&ToServer::Same)?;
    talk.end.close();
    summary(addr, arrival.counts, left, &progress).print(common.json)
}

pub(in crate::transfer) fn ls(args: &LsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let remote = RemoteFile::parse(&args.remote)?;
    let (mut talk, _) = remote.connect(common.token()?.as_ref(), Peer::WithTrees)?;
    let paths = vec![remote.path.to_owned()];
    talk.ask(&ToServer::GetTree { paths, recursive: args.recursive, names_only: true })?;
    let window = window(&mut talk, common)?;
    let mut pipe = GetPipe::new(&mut talk, window, common.timeout)?;
    while !list(&pipe.next()?, common.json)? {}
    talk.say(&ToServer::Same)?;
    talk.end.close();
    Ok(())
}

/// Prints the names in a chunk. Returns whether it was the last.
fn list(chunk: &[u8], json: bool) -> Result<bool, Failure> {
    let mut rest = chunk;
    while !rest.is_empty() {
        let (record, behind) = Record::parse(rest).map_err(|_| out_of_step())?;
        rest = behind;
        let (name, attributes, size) = match record {
            Record::Dir { name, attributes } => (format!("{}/", name.shown()), attributes, 0),
            Record::File { name, attributes, size } => (name.shown(), attributes, size),
            Record::End(_) if rest.is_empty() => return Ok(true),
            _ => return Err(out_of_step()),
        };
        let mode = attributes.mode & 0o777;
        if json {
            out::json(&Listed { name, mode, modified: attributes.seconds, octets: size });
        } else {
            say!("{mode:03o} {size:>14} {}", printable(&name));
        }
    }
    Ok(false)
}

/// An entry, as `rddp ls --json` prints it. The name of a directory ends with a slash.
#[derive(Serialize)]
struct Listed {
    name: String,
    mode: u32,
    /// Seconds since 1970.
    modified: i64,
    octets: u64,
}

fn window(talk: &mut Talk, common: &Common) -> Result<crate::transfer::protocol::Window, Failure> {
    match talk.hear(common.timeout)? {
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

/// Opens the local directory into which files go, and makes it if need be.
fn made(local: &Path) -> Result<std::os::fd::OwnedFd, FileError> {
    match nix::unistd::mkdir(local, Mode::from_bits_truncate(0o777)) {
        Ok(()) | Err(Errno::EEXIST) => directory(local),
        Err(Errno::ENOENT) => Err(FileError::NoDirectory(local.display().to_string())),
        Err(error) => Err(FileError::new(&local.display().to_string(), error)),
    }
}

/// Turns an error of a local file into a failure.
fn failed(error: FileError) -> Failure {
    error.failure(Kind::Failed)
}

fn summary(peer: SocketAddr, counts: Counts, left: Left, progress: &Progress) -> Summary {
    let Counts { files, octets, .. } = counts;
    let seconds = progress.done().as_secs_f64();
    let bytes_per_s = if seconds > 0.0 { (octets as f64 / seconds).round() } else { 0.0 };
    Summary { peer, files, octets, skipped: left.skipped, failed: left.failed, seconds, bytes_per_s }
}

impl Summary {
    /// Prints the result. Fails if not all could be sent.
    fn print(&self, json: bool) -> Result<(), Failure> {
        let Summary { files, skipped, failed, .. } = *self;
        if json {
            out::json(self);
        } else {
            let (octets, seconds, rate) = (about(self.octets), self.seconds, rate(self.bytes_per_s));
            say!("{files} files: {octets} in {seconds:.2} s, {rate}");
            if skipped > 0 {
                say!("{skipped} left out: neither files nor directories, or not complete");
            }
        }
        match failed {
            0 => Ok(()),
            _ => {
                Err(Failure::new(Kind::Changed, format!("{failed} could not be read, or changed meanwhile"))
                    .remedy("repeat the command"))
            }
        }
    }
}

//! `rddp put`: the client Writes into the server's memory.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rddp_command::failure::{Failure, FailureKind};
use rddp_rnic::{Access, SendWr};

use super::Options;
use super::checksum::Check;
use super::files::{FileError, local_file};
use super::part::Part;
use super::patience::patiently;
use super::protocol::{Chunk, SLOT, SLOTS, Terms, ToClient, ToServer, Window, out_of_step};
use super::remote::RemoteFile;
use super::show::{About, Finished, Progress, resumable};
use super::source::Source;
use super::stdin::{Stdin, umask};
use super::talk::Talk;
use super::target::STANDARD;
use super::tasks::Hub;
use super::tree;

/// The id of Writes, which cause no completions.
const WRITE: u64 = 1;

pub(super) fn run(names: &[PathBuf], recursive: bool, options: &Options) -> Result<(), Failure> {
    let (locals, remote) = match names {
        [locals @ .., remote] if !locals.is_empty() => (locals, remote),
        _ => {
            return Err(Failure::usage("put needs a file and a destination")
                .remedy("for example rddp put big.iso 192.0.2.1/big.iso"));
        }
    };
    let remote = remote.to_str().ok_or_else(|| Failure::usage(format!("{remote:?} is not UTF-8")))?;
    let [local] = locals else { return tree::put(locals, remote, recursive, options) };
    if recursive {
        return tree::put(locals, remote, true, options);
    }
    options.one_file()?;
    let hub = Hub::new(&RemoteFile::parse(remote)?.device(&options.device)?.open()?)?;
    patiently(options.retry, || 0, || hub.run(one(options, local, remote, &hub))?)
}

/// Sends one file, or standard input.
async fn one(options: &Options, local: &Path, remote: &str, hub: &Rc<Hub>) -> Result<(), Failure> {
    let remote = RemoteFile::parse(remote)?;
    let is_stdin = local == Path::new(STANDARD);
    let name = if is_stdin { remote.name()? } else { name(local)? };
    let path = remote.path_with(name)?;
    let token = options.token()?;
    // What is wrong with the file is said before anything is asked of the server.
    let file = if is_stdin { None } else { Some(local_file(local).map_err(failed)?) };
    let mut server = remote.connect(options.asks(token.as_ref()), hub)?;
    let check = options.check;
    let input = match file {
        None => Input::Stdin(Stdin::new(check)),
        Some(file) => Input::File(Source::new(file, name, check, hub).await.map_err(failed)?),
    };
    let put = Put { talk: &mut server.talk, options, local, input, check };
    let finished = put.all(path.clone()).await;
    let finished = server.talk.leaving(finished).await;
    let finished = if is_stdin { finished } else { finished.map_err(resumable) }?;
    server.talk.close().await;
    let about = About { file: path, peer: server.addr, by: server.by, check };
    finished.summary(about).print(options.json);
    Ok(())
}

/// Turns an error of a local file into a failure.
fn failed(error: FileError) -> Failure {
    error.failure(FailureKind::Failed)
}

fn name(path: &Path) -> Result<&str, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| {
        Failure::usage(format!("{path:?} has no name in UTF-8"))
            .remedy("name it together with others, or its directory with --recursive")
    })
}

/// The octets that are sent.
enum Input {
    File(Source),
    Stdin(Stdin),
}

struct Put<'a> {
    talk: &'a mut Talk,
    options: &'a Options,
    local: &'a Path,
    input: Input,
    check: Check,
}

impl Put<'_> {
    async fn hear(&mut self) -> Result<ToClient, Failure> {
        self.talk.hear(self.options.timeout).await
    }

    async fn all(mut self, path: String) -> Result<Finished, Failure> {
        self.ask(path)?;
        let (have, proof, window, replaces) = match self.hear().await? {
            ToClient::Take { have, sha256, window, replaces } => (have, sha256, window, replaces),
            // The server has it already.
            ToClient::Same if !self.options.again => {
                let Input::File(source) = &self.input else { return Err(out_of_step()) };
                return Ok(Finished::unchanged(source.size()));
            }
            _ => return Err(out_of_step()),
        };
        let talk = &mut *self.talk;
        let from = match &mut self.input {
            Input::File(source) => {
                let mut tick = async || talk.say_busy(&ToServer::Busy).await;
                source.resume(have, &proof, &mut tick).await.map_err(failed)?
            }
            Input::Stdin(_) => 0,
        };
        self.talk.say(&ToServer::From { offset: from })?;
        let progress = match &self.input {
            Input::File(source) => Progress::new(source.name(), from, source.size()),
            Input::Stdin(_) => Progress::of_stream("standard input"),
        };
        let size = self.send(from, window, &progress).await?;
        let (sha256, known) = match &self.input {
            Input::File(source) => {
                source.check_unchanged(local_file(self.local)).map_err(failed)?;
                (source.checksum(), None)
            }
            Input::Stdin(stdin) => (stdin.checksum(), Some(size)),
        };
        self.talk.say(&ToServer::End { sha256: sha256.clone(), size: known })?;
        match self.hear().await? {
            ToClient::Same => Ok(progress.finish(size, sha256, replaces)),
            _ => Err(out_of_step()),
        }
    }

    fn ask(&mut self, path: String) -> Result<(), Failure> {
        let (size, mode, modified, has_holes) = match &self.input {
            Input::File(source) => {
                (source.size(), source.mode(), Some(source.modified()), source.has_holes())
            }
            Input::Stdin(_) => (0, 0o666 & !umask(), None, false),
        };
        let (no_clobber, again) = (self.options.no_clobber, self.options.again);
        let unknown_size = matches!(self.input, Input::Stdin(_));
        let check = self.check;
        let terms = Terms { check, again, modified, unknown_size, has_holes, ..Terms::default() };
        self.talk.ask(&ToServer::Put { path, size, mode, no_clobber, terms })
    }

    /// Sends all octets from `from` on, and waits until they are in the server's file. Returns its
    /// size.
    async fn send(&mut self, from: u64, window: Window, progress: &Progress) -> Result<u64, Failure> {
        let buffers = self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let mut ends = [from; SLOTS];
        let mut end = from;
        let limit = self.options.limit;
        // With a limit, pieces hold the octets of a tenth of a second.
        let most = limit.map_or(SLOT as u64, |limit| (limit / 10).clamp(4096, SLOT as u64)) as usize;
        let mut is_more = true;
        while is_more || free.len() < SLOTS {
            if !is_more || free.is_empty() {
                let ToClient::Free { slot } = self.hear().await? else { return Err(out_of_step()) };
                release(slot, &mut free)?;
                progress.at(ends[slot]);
                continue;
            }
            let Some(&slot) = free.last() else { continue };
            let room = Part::of_slot(&buffers, slot, most);
            let Some((offset, len)) = self.next(&room, &mut free).await? else {
                is_more = false;
                continue;
            };
            free.retain(|other| *other != slot);
            end = offset + len as u64;
            ends[slot] = end;
            progress.carries(len);
            self.write_chunk(&room.first(len), window, (slot, offset))?;
            progress.keep_to(limit)?;
        }
        Ok(match &self.input {
            Input::File(source) => source.size(),
            Input::Stdin(_) => end,
        })
    }

    /// Reads the next octets into `room`; returns their offset and number. While standard input has
    /// none, the server's messages are heard.
    async fn next(
        &mut self,
        room: &Part<'_>,
        free: &mut Vec<usize>,
    ) -> Result<Option<(u64, usize)>, Failure> {
        match &mut self.input {
            Input::File(source) => {
                let talk = &mut *self.talk;
                let mut tick = async || talk.say_busy(&ToServer::Busy).await;
                source.next(room, &mut tick).await.map_err(failed)
            }
            Input::Stdin(stdin) => {
                while !stdin.is_ready() {
                    self.talk.hub.look().await;
                    match self.talk.heard()? {
                        Some(ToClient::Free { slot }) => release(slot, free)?,
                        Some(_) => return Err(out_of_step()),
                        None => self.talk.say_busy(&ToServer::Busy).await?,
                    }
                }
                stdin.next(room)
            }
        }
    }

    /// Writes octets of the file into a slot of the server, and announces them.
    fn write_chunk(
        &mut self,
        octets: &Part<'_>,
        window: Window,
        (slot, offset): (usize, u64),
    ) -> Result<(), Failure> {
        let write = SendWr::write(WRITE, octets.memory.sge(octets.range.clone()), window.slot(slot));
        let crc = self.check.of_chunk(octets)?;
        self.talk.say_behind(Some(write), &ToServer::Chunk(Chunk { slot, offset, len: octets.len(), crc }))
    }
}

/// Takes back a slot that the other end has emptied.
fn release(slot: usize, free: &mut Vec<usize>) -> Result<(), Failure> {
    if slot >= SLOTS || free.contains(&slot) {
        return Err(out_of_step());
    }
    free.push(slot);
    Ok(())
}

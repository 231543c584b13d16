//! A tree that arrives: directories are made, and each file gets its name once it is complete.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat};
use nix::unistd::syncfs;
use rddp_command::failure::Failure;

use super::arriving::{Arriving, Contents};
use super::asked::Asked;
use super::below::{beneath, has_begun, kind, kind_of, look};
use super::counts::{Counts, Named};
use super::dirs::{Dir, Dirs};
use super::exclude::Excluded;
use super::left_out::{LeftOut, What};
use super::record::{Attributes, Left, Name, Record, RecordError};
use super::refused::{Refused, Sent, There};
use super::removed::Compared;
use super::short::Short;
use super::unread::complain_unread;
use super::wanted::Wanted;
use super::widened::{Widened, set_dir_mode};
use crate::files::{FileError, PART, Spot};
use crate::partial::{Clobber, Last, Partial, is_same, is_there, replaces};
use crate::protocol::{BEGUN, OFFERS, Removed, Terms, Want, out_of_step};
use crate::tasks::Hub;
use crate::wishes::Wishes;

/// Octets of a file that is worth resuming. What has arrived of a shorter one is removed when the
/// transfer ends early.
const WORTH_RESUMING: u64 = 1 << 20;

/// The directory into which a tree arrives. No symbolic link below it is followed.
pub(crate) struct Arrival {
    hub: Rc<Hub>,
    pub(super) top: OwnedFd,
    /// This transfer has made the uppermost directory.
    top_is_new: bool,
    /// The uppermost directory is not there, and nothing is to be changed.
    pub(super) is_missing: bool,
    dirs: Dirs,
    /// The directory of the last file.
    dir: Dir,
    /// The name of a short file that is not complete; at most one exists at a time.
    pub(super) part: OsString,
    pub(super) clobber: Clobber,
    /// The place where it is said what is refused.
    pub(super) named: Named,
    pub(super) refused: Refused,
    pub(super) widened: Widened,
    terms: Terms,
    pub(super) wishes: Wishes,
    pub(super) excluded: Excluded,
    pub(super) wanted: Wanted,
    /// The directory that is compared with the sender's.
    pub(super) compared: Option<Compared>,
    /// Entries that were removed since the sender has asked.
    pub(super) removed: VecDeque<Removed>,
    /// Files of the last offers that had begun to arrive before, by their names.
    begun: Vec<(Vec<u8>, Partial)>,
    /// Files of the offers before, with which the sender goes on meanwhile.
    begun_before: Vec<(Vec<u8>, Partial)>,
    file: Option<Arriving>,
    /// Entries that the sender has left out, and named.
    pub(crate) left_out: LeftOut,
    pub(super) asked: Asked,
    pub(crate) counts: Counts,
}

/// The directory into which a tree goes.
pub(crate) struct Top {
    pub(crate) dir: OwnedFd,
    /// This transfer has made it.
    pub(crate) is_new: bool,
    /// The directory is not there: this is the one above it, and nothing is to be changed.
    pub(crate) is_missing: bool,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // What is not complete may have to be removed from a directory that is closed then.
        self.file = None;
        self.begun.clear();
        self.begun_before.clear();
        self.widened.restore(&self.top);
    }
}

/// The outcome of a chunk.
pub(crate) enum Taken {
    More,
    /// The sender asks which of the files it is to send.
    Asked(Want),
    /// All has arrived but for this.
    All(Left),
}

impl Arrival {
    pub(crate) fn new(
        Top { dir: top, is_new: top_is_new, is_missing }: Top,
        clobber: Clobber,
        terms: Terms,
        (wishes, excluded): (Wishes, Excluded),
        named: Named,
        hub: &Rc<Hub>,
    ) -> Result<Self, FileError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| FileError::Stopped(Failure::failed(format!("random numbers: {error}"))))?;
        let part = format!(".{:016x}{PART}", u64::from_be_bytes(random)).into();
        let mut dirs = Dirs::new();
        if top_is_new {
            dirs.has_made(b"");
        }
        let dir = top.try_clone().map_err(|error| FileError::new(".", error))?;
        let dir = dirs.opened(OsStr::new(""), dir);
        Ok(Arrival {
            hub: hub.clone(),
            top,
            top_is_new,
            is_missing,
            dirs,
            dir,
            part,
            clobber,
            named,
            refused: Refused::default(),
            widened: Widened::default(),
            terms,
            wishes,
            excluded,
            wanted: Wanted::default(),
            compared: None,
            removed: VecDeque::new(),
            begun: Vec::new(),
            begun_before: Vec::new(),
            file: None,
            left_out: LeftOut::default(),
            asked: Asked::default(),
            counts: Counts::default(),
        })
    }

    /// Takes the records of one chunk. `tick` is called now and then.
    pub(crate) async fn take(
        &mut self,
        chunk: &[u8],
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<Taken, FileError> {
        let mut rest = chunk;
        // A client tells its own user what it does not send.
        let is_told = self.named != Named::There;
        while !rest.is_empty() {
            let (record, behind) = Record::parse(rest, self.terms.check).map_err(no_record)?;
            rest = behind;
            self.asked.check(&record, &self.excluded).map_err(FileError::Stopped)?;
            match (record, &mut self.file) {
                (Record::Dir { name, attributes }, None) => self.make_dir(name, attributes)?,
                (Record::File { name, attributes, size }, None) => {
                    self.file = Some(self.begin(name, attributes, size).await?);
                }
                (Record::Data { offset, octets }, Some(file)) => {
                    file.write(offset, octets, &self.hub, tick).await?;
                    self.counts.carried += octets.len() as u64;
                }
                (Record::Complete, Some(_)) => self.complete(tick).await?,
                (Record::Withdrawn, file @ Some(_)) => file.take().into_iter().for_each(Arriving::discard),
                (Record::End(left), None) if rest.is_empty() => return Ok(Taken::All(left)),
                (Record::Offer { name, attributes, size }, None) if self.wanted.count() < OFFERS => {
                    if self.wanted.count() == 0 {
                        // The sender has had its turn for those of the last offers but one: only so
                        // many files are open.
                        self.begun_before = std::mem::take(&mut self.begun);
                    }
                    self.consider(name, attributes, size, tick).await?;
                }
                (Record::Ask, None) if rest.is_empty() => {
                    let mut want = self.wanted.take();
                    self.tell_of_removed(&mut want);
                    return Ok(Taken::Asked(want));
                }
                (Record::Link { name, attributes, target }, None) => {
                    self.make_link(name, attributes, target)?;
                }
                (Record::Top(attributes), None) => self.has_top(attributes),
                (Record::Listed(name), None) => self.compare(name)?,
                (Record::Entry(name), None) => self.keep(name, tick).await?,
                (Record::Closed { name, attributes }, None) => self.close(name, attributes, tick).await?,
                (Record::Resume { name, attributes, size, from }, None) => {
                    self.file = Some(self.resume(name, attributes, size, from)?);
                }
                (Record::Sha256(digest), Some(file)) => file.named = Some(*digest),
                (Record::Unread { name, errno }, None) if is_told => {
                    complain_unread(name, errno);
                }
                (Record::LeftOut { name, what }, None) if is_told => {
                    self.left_out.note(name, What::from_number(what));
                }
                _ => return Err(FileError::Stopped(out_of_step())),
            }
            tick().await.map_err(FileError::Stopped)?;
        }
        Ok(Taken::More)
    }

    /// Waits until all has reached the disk. `tick` is called meanwhile.
    pub(crate) async fn finish(
        &mut self,
        tick: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        self.widened.restore(&self.top);
        if self.wishes.no_sync || self.wishes.dry_run {
            return Ok(());
        }
        let wrong = |error: std::io::Error| FileError::new(".", error);
        // A descriptor of `O_PATH` cannot be synced.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(top) = openat(&self.top, ".", flags, Mode::empty()) else { return Ok(()) };
        let synced = self.hub.aside(move || syncfs(top), tick).await.map_err(FileError::Stopped)?;
        synced.unwrap_or(Err(Errno::EAGAIN)).map_err(|error| wrong(error.into()))
    }

    /// Returns the number of the next directory or link.
    pub(super) fn numbered(&mut self) -> Result<usize, FileError> {
        let number = self.wanted.has_dir();
        if number >= OFFERS && self.named == Named::There {
            return Err(FileError::Stopped(out_of_step()));
        }
        Ok(number)
    }

    /// Gives the uppermost directory the permissions of the one whose contents are sent, if it was
    /// made for them. Others may still write to it.
    fn has_top(&self, attributes: Attributes) {
        if self.top_is_new {
            // One of a file system without permissions stays as it is.
            let _ = set_dir_mode(&self.top, attributes.mode | 0o700);
        }
    }

    /// Makes a directory, unless it exists, and sets its permissions.
    fn make_dir(&mut self, name: Name<'_>, attributes: Attributes) -> Result<(), FileError> {
        let number = self.numbered()?;
        if self.refused.is_below(name.octets()) {
            return Ok(());
        }
        let (parent, last) = name.split();
        let Some(dir) = self.found(parent, name)? else {
            self.would_make(name, number, Sent::Directory);
            return Ok(());
        };
        let wrong = |error: Errno| FileError::new(&name.shown(), error);
        let made = if self.wishes.dry_run {
            kind(&dir, last).map_or_else(Err, |_| Err(Errno::EEXIST))
        } else {
            self.widened.widen(&self.top, &dir, parent);
            mkdirat(&*dir, last, Mode::S_IRWXU)
        };
        match made {
            Ok(()) => self.dirs.has_made(name.octets()),
            Err(Errno::ENOENT) if self.wishes.dry_run => {
                self.would_make(name, number, Sent::Directory);
                return Ok(());
            }
            Err(Errno::EEXIST) => match kind(&dir, last).map_err(wrong)? {
                SFlag::S_IFDIR => {}
                there => return self.refuse_entry(name, number, Sent::Directory, There::of(there)),
            },
            Err(error) => return Err(wrong(error)),
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = openat(&*dir, last, flags, Mode::empty()).map_err(wrong)?;
        if self.wishes.dry_run {
            return self.would_permit_dir(&made, name, number, attributes.mode).map_err(wrong);
        }
        set_dir_mode(&made, attributes.mode).map_err(wrong)
    }

    /// Returns whether this connection tells what all of several see.
    pub(super) fn tells(&self) -> bool {
        self.terms.share.is_none_or(|share| share.number == 0)
    }

    /// Refuses a directory or a link, in whose place something else stays.
    pub(super) fn refuse_entry(
        &mut self,
        name: Name<'_>,
        number: usize,
        sent: Sent,
        there: There,
    ) -> Result<(), FileError> {
        match self.named {
            Named::There => self.wanted.refuses_dir(number, there),
            Named::Here { .. } if sent == Sent::Link || self.tells() => {
                self.counts.refused(name, sent, there);
            }
            Named::Here { .. } => {}
        }
        if sent == Sent::Directory {
            self.refused.add_dir(name);
        }
        Ok(())
    }

    /// Has the sender not send the file that is offered, since something else stays there.
    fn refuse(&mut self, name: Name<'_>, there: There) -> Result<(), FileError> {
        match self.named {
            Named::There => self.wanted.refuses(there),
            Named::Here { .. } => {
                self.wanted.same();
                self.counts.refused(name, Sent::File, there);
            }
        }
        Ok(())
    }

    /// Finds out whether an offered file is wanted, and from where on.
    async fn consider(
        &mut self,
        name: Name<'_>,
        attributes: Attributes,
        size: u64,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        if self.refused.is_below(name.octets()) {
            self.wanted.same();
            return Ok(());
        }
        let (path, last) = name.split();
        let Some(dir) = self.found(path, name)? else {
            self.would_take(name, size);
            return Ok(());
        };
        if self.dir.is_empty {
            self.wanted.wants(None);
            return Ok(());
        }
        self.widened.join(&self.top, &dir, path);
        let there = look(&dir, last).or_else(|error| match error {
            Errno::EACCES => {
                self.widened.widen(&self.top, &dir, path);
                look(&dir, last)
            }
            error => Err(error),
        });
        match there.map(|there| (kind_of(&there), there)) {
            Ok((SFlag::S_IFREG, there)) => {
                let wanted = attributes.last(size);
                let is_same = if self.wishes.dry_run {
                    is_same(&there, wanted).is_some()
                } else {
                    is_there(&dir, last, &there, wanted)
                };
                if !self.terms.again && is_same {
                    self.counts.unchanged += 1;
                    if self.wishes.dry_run && there.st_mode & 0o777 != attributes.mode & 0o777 {
                        self.would_permit(name);
                    } else {
                        self.wanted.same();
                    }
                    return Ok(());
                }
                if self.clobber == Clobber::No {
                    return self.refuse(name, There::Kept);
                }
            }
            Ok((there, _)) => return self.refuse(name, There::of(there)),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(FileError::new(&name.shown(), error)),
        }
        if self.wishes.dry_run {
            self.would_take(name, size);
            return Ok(());
        }
        let mut begun = None;
        if size >= WORTH_RESUMING && self.begun.len() < BEGUN && has_begun(&dir, last, size) {
            let dir = self.writable(path, name)?;
            let mut partial = self.partial(&dir, last).await?;
            let (have, proof) = partial.examine(tick).await?;
            // A file that has grown meanwhile is begun anew.
            begun = (1..=size).contains(&have).then_some((have, proof));
            self.begun.push((name.octets().to_vec(), partial));
        }
        self.wanted.wants(begun);
        Ok(())
    }

    async fn partial(&self, dir: &OwnedFd, name: &OsStr) -> Result<Partial, FileError> {
        let dir = dir.try_clone().map_err(|error| FileError::new(&name.to_string_lossy(), error))?;
        let spot = Spot { dir, name: name.to_owned() };
        let mut partial = Partial::open(spot, self.clobber, self.terms.check, &self.hub).await?;
        if self.wishes.no_sync {
            partial.leave_unsynced();
        }
        Ok(partial)
    }

    /// Returns what had arrived of a file before.
    fn begun(&mut self, name: Name<'_>) -> Option<Partial> {
        [&mut self.begun_before, &mut self.begun].into_iter().find_map(|all| {
            let at = all.iter().position(|(begun, _)| begun == name.octets())?;
            Some(all.swap_remove(at).1)
        })
    }

    fn resume(
        &mut self,
        name: Name<'_>,
        attributes: Attributes,
        size: u64,
        from: u64,
    ) -> Result<Arriving, FileError> {
        let partial = self.begun(name).filter(|partial| partial.len() == from);
        let partial = partial.ok_or_else(|| FileError::Stopped(out_of_step()))?;
        let (shown, last) = (name.shown(), attributes.last(size));
        Ok(Arriving { shown, last, from, contents: Contents::Long(partial), named: None })
    }

    async fn begin(
        &mut self,
        name: Name<'_>,
        attributes: Attributes,
        size: u64,
    ) -> Result<Arriving, FileError> {
        let (path, last) = name.split();
        let shown = name.shown();
        let dir = self.writable(path, name)?;
        if !self.dir.is_empty {
            replaces(&dir, last, self.clobber, &shown)?;
        }
        let begun = self.begun(name);
        let contents = if size >= WORTH_RESUMING {
            let mut partial = match begun {
                Some(partial) => partial,
                None => self.partial(&dir, last).await?,
            };
            partial.restart()?;
            Contents::Long(partial)
        } else {
            let check = self.terms.check;
            Contents::Short(Short::new(&self.dir, &self.part, last, attributes.mode, check, &shown)?)
        };
        Ok(Arriving { shown, last: attributes.last(size), from: 0, contents, named: None })
    }

    async fn complete(
        &mut self,
        tick: &mut impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), FileError> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.check(self.terms.check, tick).await?;
        let Arriving { shown, last, from, contents, .. } = file;
        let replaced = match contents {
            Contents::Short(short) => short.finish(last, self.clobber, &shown)?,
            Contents::Long(partial) => partial.finish(last, &self.hub).await?,
        };
        self.counts.files += 1;
        self.counts.octets += last.size - from;
        self.counts.replaced += u64::from(replaced);
        Ok(())
    }

    /// Returns the directory with this path, `name`'s, in which files can be made.
    fn writable(&mut self, path: &OsStr, name: Name<'_>) -> Result<Rc<OwnedFd>, FileError> {
        let dir = self.directory(path, name)?;
        if !self.dir.is_writable {
            self.widened.widen(&self.top, &dir, path);
            self.dir.is_writable = true;
        }
        Ok(dir)
    }

    /// Returns the directory with this path, `name`'s. `None` where it would have been made, if
    /// something was to be changed.
    pub(super) fn found(&mut self, path: &OsStr, name: Name<'_>) -> Result<Option<Rc<OwnedFd>>, FileError> {
        if self.is_missing {
            return Ok(None);
        }
        match self.directory(path, name) {
            Err(FileError::NoDirectory(_)) if self.wishes.dry_run => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns the directory with this path, `name`'s.
    fn directory(&mut self, path: &OsStr, name: Name<'_>) -> Result<Rc<OwnedFd>, FileError> {
        if self.dir.path != path {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            let opened = beneath(&self.top, path, flags).or_else(|error| match error {
                // One on the way cannot be searched.
                Errno::EACCES => {
                    self.widened.widen_all(&self.top, path);
                    beneath(&self.top, path, flags)
                }
                error => Err(error),
            });
            let opened = opened.map_err(|error| match error {
                Errno::ENOENT | Errno::ENOTDIR => FileError::NoDirectory(name.shown()),
                Errno::ELOOP => FileError::Outside(name.shown()),
                error => FileError::new(&name.shown(), error),
            })?;
            self.dir = self.dirs.opened(path, opened);
        }
        Ok(self.dir.open.clone())
    }
}

impl Attributes {
    fn last(self, size: u64) -> Last {
        Last { size, mode: self.mode, modified: Some(self.modified) }
    }
}

fn no_record(error: RecordError) -> FileError {
    FileError::Stopped(match error {
        RecordError::Crc => Failure::mismatch("octets changed on their way: their crc32c does not match"),
        RecordError::Malformed => out_of_step(),
    })
}

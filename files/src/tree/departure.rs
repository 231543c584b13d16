//! A tree that is sent: its directories and regular files, in chunks that are full of records.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::below::beneath;
use super::counts::{Counts, Named};
use super::exclude::Excluded;
use super::left_out::{LeftOut, What};
use super::pipe::Pipe;
use super::record::{AROUND_DATA, Attributes, LONGEST, Left, Name, Record, data_head};
use super::refused::{Refused, Sent};
use super::unread::{CHANGED, complain, complain_unread, unread};
use super::wanted::{Answer, Answers};
use super::would::{Would, tell_would};
use crate::checksum::{Check, Checksum, beginning};
use crate::files::{FileError, PART};
use crate::protocol::{Begun, OFFERS, SLOT, Share, Terms};
use crate::source::{Version, extent, is_sparse, modified};
use crate::wishes::Wishes;

/// Files that the user names one by one, and that are open before they are offered.
const MOST_OPEN: usize = 64;

/// Octets of a file that are worth a record of their own at the end of a chunk.
const WORTH: usize = 4096;

/// The depth of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Into directories; without it, only files are sent, and of directories the names in them.
    pub(crate) recursive: bool,
    /// Names and attributes, without the octets of files.
    pub(crate) names_only: bool,
}

pub(crate) struct Departure<P> {
    pub(super) pipe: P,
    /// Octets of the chunk that is being filled.
    filled: usize,
    /// The buffer for records.
    record: Vec<u8>,
    pub(super) depth: Depth,
    check: Check,
    pub(super) share: Option<Share>,
    pub(super) wishes: Wishes,
    pub(super) excluded: Excluded,
    offered: Vec<Offered>,
    /// Directories and links that were named since the other end was asked.
    pub(super) dirs: Vec<(Vec<u8>, Sent)>,
    /// The files about which the other end was asked, and has not been heard.
    asked: Option<Batch>,
    pub(super) refused: Refused,
    pub(super) left: Left,
    left_out: LeftOut,
    pub(super) named: Named,
    pub(crate) counts: Counts,
}

/// A file that is offered, or about to be.
struct Offered {
    name: Vec<u8>,
    attributes: Attributes,
    size: u64,
    location: Location,
}

/// Files that are offered together, and the directories and links that were named before them.
#[derive(Default)]
struct Batch {
    offered: Vec<Offered>,
    dirs: Vec<(Vec<u8>, Sent)>,
}

/// Location of a file that is to be sent.
pub(super) enum Location {
    Open(File),
    /// In a directory that is walked, by its path.
    Below(Rc<OwnedFd>, Vec<u8>),
}

impl<P: Pipe> Departure<P> {
    pub(crate) fn new(
        pipe: P,
        depth: Depth,
        terms: Terms,
        (wishes, excluded): (Wishes, Excluded),
        named: Named,
    ) -> Self {
        Departure {
            pipe,
            filled: 0,
            record: Vec::new(),
            depth,
            check: terms.check,
            share: terms.share,
            wishes,
            excluded,
            offered: Vec::new(),
            dirs: Vec::new(),
            asked: None,
            refused: Refused::default(),
            left: Left::default(),
            left_out: LeftOut::new(named == Named::Here { skip_special: true }),
            named,
            counts: Counts::default(),
        }
    }

    /// Sends a file or directory, by this name; of a directory without one, what it holds. `shown`
    /// is its name in messages, and `open` opens it. One of several that cannot be opened is named,
    /// and the rest goes on.
    pub(crate) async fn add(
        &mut self,
        name: &[u8],
        shown: &str,
        is_alone: bool,
        open: impl Fn(OFlag) -> nix::Result<OwnedFd>,
    ) -> Result<(), FileError> {
        let wrong = |error: std::io::Error| FileError::new(shown, error);
        let file = match open(OFlag::O_PATH | self.follows(name)) {
            Ok(file) => File::from(file),
            Err(error) if is_alone => return Err(wrong(error.into())),
            Err(error) => return self.cannot_open(name, shown, error).await,
        };
        let there = file.metadata().map_err(wrong)?;
        if self.is_excluded(name, there.is_dir()) {
            return Ok(());
        }
        if there.is_symlink() {
            return self.link(name, (file.as_fd(), OsStr::new("")), 0, attributes(&there)).await;
        }
        if there.is_dir() {
            if !self.depth.recursive && !self.depth.names_only {
                return Err(FileError::Directory(shown.to_owned()));
            }
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            // The names of a listing begin where it does.
            let name = if self.depth.names_only { &[] } else { name };
            let top = Rc::new(open(flags).map_err(|error| wrong(error.into()))?);
            if self.depth.names_only {
                // What was asked for itself is no entry that could be named as unread.
                open(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
                    .map_err(|error| wrong(error.into()))?;
            }
            if name.is_empty() && !self.depth.names_only {
                self.push(&Record::Top(attributes(&there))).await?;
            }
            return self.walk(name, &top).await;
        }
        if !there.is_file() {
            return Err(FileError::NotRegular(shown.to_owned()));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = match open(flags) {
            Ok(file) => File::from(file),
            Err(error) if is_alone => return Err(wrong(error.into())),
            Err(error) => return self.cannot_open(name, shown, error).await,
        };
        let name = Name::new(name).ok_or_else(|| FileError::Reserved(shown.to_owned()))?;
        self.file(name, (attributes(&there), there.size()), Location::Open(file)).await?;
        // So few files are kept open.
        if self.offered.len() >= MOST_OPEN { self.settle().await } else { Ok(()) }
    }

    /// Counts and names one of several that the user has named, on one of several connections.
    async fn cannot_open(&mut self, name: &[u8], shown: &str, error: Errno) -> Result<(), FileError> {
        match self.named {
            Named::Here { .. } if self.tells() => {
                self.left.failed += 1;
                complain(shown, &FileError::new(shown, error));
                Ok(())
            }
            Named::Here { .. } => Ok(()),
            // The other end is told of it by a name.
            Named::There if name.is_empty() => Err(FileError::new(shown, error)),
            Named::There => self.cannot_walk(name, error).await,
        }
    }

    /// Returns the flags by which what the user has named is opened. As for rsync, a link is sent
    /// as a link with its tree, unless its contents are named; as for scp, it stands for its file
    /// where no tree is sent.
    pub(super) fn follows(&self, name: &[u8]) -> OFlag {
        let is_link = self.depth.recursive && !self.depth.names_only && !name.is_empty();
        if is_link { OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC } else { OFlag::O_CLOEXEC }
    }

    /// Ends the tree. Returns what was left out, once the other end has taken all.
    pub(crate) async fn finish(mut self) -> Result<(Left, LeftOut, Counts), FileError> {
        self.settle_all().await?;
        let left = self.left;
        self.push(&Record::End(left)).await?;
        self.flush().await?;
        self.pipe.drain().await.map_err(FileError::Stopped)?;
        Ok((left, self.left_out, self.counts))
    }

    /// Returns whether what the user has named is left out by a pattern, as rsync has it.
    pub(super) fn is_excluded(&self, name: &[u8], is_dir: bool) -> bool {
        !name.is_empty() && self.excluded.has(name, is_dir)
    }

    /// Returns whether this connection tells what all of several see.
    pub(super) fn tells(&self) -> bool {
        self.share.is_none_or(|share| share.number == 0)
    }

    /// Counts and names an entry that is not sent, on one of several connections.
    pub(super) async fn leave_out(&mut self, name: &[u8], what: What) -> Result<(), FileError> {
        if !self.tells() {
            return Ok(());
        }
        self.left.skipped += 1;
        match self.named {
            Named::Here { .. } => self.left_out.note(name, what),
            Named::There => self.push(&Record::LeftOut { name, what: what.number() }).await?,
        }
        Ok(())
    }

    /// Returns the name of a file or directory, by which it can be sent; `None` for what is left
    /// out.
    pub(super) async fn sendable<'n>(&mut self, name: &'n [u8]) -> Result<Option<Name<'n>>, FileError> {
        let what = if name.ends_with(PART.as_bytes()) { What::Incomplete } else { What::LongPath };
        match Name::new(name) {
            Some(sendable) => Ok(Some(sendable)),
            None => self.leave_out(name, what).await.map(|()| None),
        }
    }

    /// Counts and names what could not be read: by `errno`, or because it changed, which is 0.
    /// Fails where the other end does better to come back for it.
    pub(super) async fn cannot_read(&mut self, name: &[u8], errno: u32) -> Result<(), FileError> {
        self.left.failed += 1;
        let Some(name) = Name::new(name) else { return Ok(()) };
        let error = unread(name, errno);
        if self.named == Named::There && matches!(error, FileError::NoDescriptor { .. }) {
            return Err(error);
        }
        match self.named {
            Named::Here { .. } => complain_unread(name, errno),
            Named::There => self.push(&Record::Unread { name, errno }).await?,
        }
        Ok(())
    }

    /// Sends a file or its name, or offers it, if it is for this connection.
    pub(super) async fn file(
        &mut self,
        name: Name<'_>,
        (attributes, size): (Attributes, u64),
        location: Location,
    ) -> Result<(), FileError> {
        if self.is_for_others(name) {
            return Ok(());
        }
        if self.depth.names_only {
            return self.push(&Record::File { name, attributes, size }).await;
        }
        let file = Offered { name: name.octets().to_vec(), attributes, size, location };
        self.offered.push(file);
        self.settle_many().await
    }

    /// Returns whether this goes over another of several connections.
    pub(super) fn is_for_others(&self, name: Name<'_>) -> bool {
        self.share.is_some_and(|share| !is_in(share, name))
    }

    /// Asks the other end what it wants, once as much was offered as may be.
    pub(super) async fn settle_many(&mut self) -> Result<(), FileError> {
        if self.offered.len() + self.dirs.len() >= OFFERS { self.settle().await } else { Ok(()) }
    }

    /// Offers files, and sends those of the offers before that the other end wants. So it looks at
    /// files while others are on their way, and this end goes on without waiting for it.
    async fn settle(&mut self) -> Result<(), FileError> {
        let batch =
            Batch { offered: std::mem::take(&mut self.offered), dirs: std::mem::take(&mut self.dirs) };
        let is_empty = batch.offered.is_empty() && batch.dirs.is_empty();
        if !is_empty {
            for Offered { name, attributes, size, .. } in &batch.offered {
                let Some(name) = Name::new(name) else { continue };
                self.push(&Record::Offer { name, attributes: *attributes, size: *size }).await?;
            }
            self.push(&Record::Ask).await?;
            self.flush().await?;
        }
        match std::mem::replace(&mut self.asked, (!is_empty).then_some(batch)) {
            Some(before) => self.fulfil(before).await,
            None => Ok(()),
        }
    }

    /// Sends all files that were offered, as far as they are wanted.
    pub(super) async fn settle_all(&mut self) -> Result<(), FileError> {
        self.settle().await?;
        self.settle().await
    }

    /// Sends those of a batch that the other end wants.
    async fn fulfil(&mut self, Batch { offered, dirs }: Batch) -> Result<(), FileError> {
        let want = self.pipe.wanted().await.map_err(FileError::Stopped)?;
        let mut answers = Answers::new(want, offered.len(), dirs.len()).map_err(FileError::Stopped)?;
        for (number, there) in answers.refused_dirs() {
            let (name, sent) = &dirs[number];
            let Some(name) = Name::new(name) else { continue };
            match sent {
                Sent::Link => self.counts.links -= 1,
                _ => self.refused.add_dir(name),
            }
            if *sent == Sent::Link || self.tells() {
                self.counts.refused(name, *sent, there);
            }
        }
        for number in answers.made_dirs() {
            let (name, sent) = &dirs[number];
            tell_would(if *sent == Sent::Link { Would::Link } else { Would::Make }, name);
        }
        for number in answers.permitted_dirs() {
            tell_would(Would::Permit, &dirs[number].0);
        }
        for file in offered {
            match (answers.next(), Name::new(&file.name)) {
                (Answer::Wanted(_), _) if self.wishes.dry_run => {
                    tell_would(Would::Send, &file.name);
                    self.counts.files += 1;
                    self.counts.octets += file.size;
                }
                (Answer::Wanted(begun), _) => self.transfer(file, begun).await?,
                (Answer::Refused(there), Some(name)) => self.counts.refused(name, Sent::File, there),
                (Answer::Same | Answer::Permitted, _) if self.refused.is_below(&file.name) => {}
                (answer, _) => {
                    if answer == Answer::Permitted {
                        tell_would(Would::Permit, &file.name);
                    }
                    self.counts.unchanged += 1;
                    self.pipe.has_file();
                }
            }
        }
        Ok(())
    }

    /// Sends a file, from where the other end's octets end if they are its first ones.
    async fn transfer(&mut self, file: Offered, begun: Option<Begun>) -> Result<(), FileError> {
        let Offered { name, location, .. } = file;
        let Some(name) = Name::new(&name) else { return Ok(()) };
        let file = match location {
            Location::Open(file) => Ok(file),
            Location::Below(top, path) => beneath(&top, OsStr::from_bytes(&path), READ).map(File::from),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => return self.cannot_read(name.octets(), error as u32).await,
        };
        let hub = self.pipe.hub();
        let Some(there) = Version::settled(&file, &hub).await.ok().filter(Metadata::is_file) else {
            return self.cannot_read(name.octets(), CHANGED).await;
        };
        let (attributes, size) = (attributes(&there), there.size());
        let (from, mut checksum) = self.begin(&file, size, begun, name).await?;
        let record = match from {
            0 => Record::File { name, attributes, size },
            from => Record::Resume { name, attributes, size, from },
        };
        self.push(&record).await?;
        let version = Version::of(&there);
        let is_whole = self.octets(&file, &there, from, &mut checksum).await?
            && file.metadata().is_ok_and(|now| Version::of(&now) == version)
            // Such as those of /proc have no size.
            && (size > 0 || file.read_at(&mut [0], 0).is_ok_and(|more| more == 0));
        if !is_whole {
            self.push(&Record::Withdrawn).await?;
            return self.cannot_read(name.octets(), CHANGED).await;
        }
        self.counts.files += 1;
        self.counts.octets += size - from;
        if let Some(digest) = checksum.digest() {
            self.push(&Record::Sha256(&digest)).await?;
        }
        self.pipe.has_file();
        self.push(&Record::Complete).await
    }

    /// Returns where to begin, and the checksum of what is before.
    async fn begin(
        &mut self,
        file: &File,
        size: u64,
        begun: Option<Begun>,
        name: Name<'_>,
    ) -> Result<(u64, Checksum), FileError> {
        if let Some(Begun { have, proof, .. }) = begun
            && have <= size
        {
            let pipe = &mut self.pipe;
            let mut tick = async || pipe.tick().await;
            let found = beginning(file, have, self.check, &name.shown(), &mut tick).await?;
            if found.len == have && found.proof == proof {
                return Ok((have, found.checksum));
            }
        }
        Ok((0, Checksum::new(self.check)))
    }

    /// Sends the octets of a file but for its holes. Returns whether all could be read.
    async fn octets(
        &mut self,
        file: &File,
        there: &Metadata,
        from: u64,
        checksum: &mut Checksum,
    ) -> Result<bool, FileError> {
        let (mut at, size) = (from, there.size());
        while at < size {
            let (from, to) = if is_sparse(there) { extent(file, at, size) } else { (at, size) };
            let pipe = &mut self.pipe;
            checksum.add_zeros(from - at, &mut async || pipe.tick().await).await?;
            at = from;
            while at < to {
                self.make_room(AROUND_DATA + WORTH.min((to - at) as usize)).await?;
                let chunk = self.pipe.room().await.map_err(FileError::Stopped)?;
                let (head, octets) = chunk.behind(self.filled).split(AROUND_DATA);
                let octets = octets.first(usize::try_from(to - at).unwrap_or(SLOT));
                let read = octets.memory.read_from(file, at, octets.range.clone());
                if !read.is_ok_and(|count| count == octets.len()) {
                    return Ok(false);
                }
                checksum.add_part(&octets).map_err(FileError::memory)?;
                let crc = self.check.of_chunk(&octets).map_err(FileError::memory)?.unwrap_or(0);
                head.fill(&data_head(at, octets.len(), crc)).map_err(FileError::memory)?;
                let len = octets.len();
                self.filled += AROUND_DATA + len;
                self.counts.carried += len as u64;
                at += len as u64;
            }
        }
        Ok(true)
    }

    pub(super) async fn push(&mut self, record: &Record<'_>) -> Result<(), FileError> {
        self.make_room(LONGEST).await?;
        self.record.clear();
        record.emit(self.check, &mut self.record);
        let chunk = self.pipe.room().await.map_err(FileError::Stopped)?;
        chunk.behind(self.filled).fill(&self.record).map_err(FileError::memory)?;
        self.filled += self.record.len();
        Ok(())
    }

    async fn make_room(&mut self, octets: usize) -> Result<(), FileError> {
        if SLOT - self.filled < octets { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn flush(&mut self) -> Result<(), FileError> {
        self.pipe.send(self.filled).map_err(FileError::Stopped)?;
        self.filled = 0;
        self.pipe.hub().breathe().await;
        Ok(())
    }
}

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// Returns the attributes of an entry. All bits of its permissions are listed; a receiver takes
/// those that it may.
pub(super) fn attributes(there: &Metadata) -> Attributes {
    Attributes { mode: there.mode() & 0o7777, modified: modified(there) }
}

/// Returns whether a file goes over this of several connections.
fn is_in(share: Share, name: Name<'_>) -> bool {
    crc_fast::crc32_iscsi(name.octets()) % share.of == share.number
}

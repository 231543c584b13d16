//! Requests for trees, at the server.

use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};
use rddp_command::failure::Failure;
use rddp_rnic::Access;

use super::client::{Client, Memory};
use super::served::Served;
use crate::files::{FileError, Root, inside, refused};
use crate::partial::Clobber;
use crate::protocol::{MAX_PATH, SLOT, Terms, ToClient, ToServer, Window, out_of_step};
use crate::talk::Talk;
use crate::tree::{Arrival, Counts, Departure, Depth, Excluded, GivePipe, Named, Taken, Top};
use crate::tree::{name_of, place_of};
use crate::wishes::{Links, Wishes};

/// Octets of all names in one request.
const MAX_NAMES: usize = MAX_PATH;

impl Client<'_> {
    /// Receives a tree, by the client's RDMA Writes into slots of this end's memory.
    pub(super) async fn put_tree(
        &mut self,
        path: String,
        clobber: Clobber,
        (wishes, terms): (Wishes, Terms),
        slots: &mut Memory,
    ) -> Result<Served, Failure> {
        self.writable(&path)?;
        if wishes.links == Links::All && !self.server.links_out {
            return Err(Failure::refused("this server takes no symbolic links that lead out")
                .remedy("start it with --links all, or leave --links all out"));
        }
        let place = place_of(&path);
        let top = if wishes.dry_run { found } else { made }(&self.server.root, place).map_err(refused)?;
        let excluded = Excluded::new(&wishes.exclude).map_err(|_| out_of_step())?;
        let hub = &self.talk.hub;
        let arrival = Arrival::new(top, clobber, terms, (wishes, excluded), Named::There, hub);
        let mut arrival = arrival.map_err(refused)?;
        let slots = slots.insert(Arc::new(self.slots(Access::REMOTE_WRITE)?));
        self.talk.say(&ToClient::Tree { window: Window::of(slots) })?;
        let (mut octets, mut offset) = (vec![0; SLOT], 0);
        loop {
            let ToServer::Chunk(chunk) = self.hear().await? else { return Err(out_of_step()) };
            chunk.check(offset, u64::MAX)?;
            offset += chunk.len as u64;
            // The client can write to this memory at any time: only the octets that are copied
            // here count.
            let octets = &mut octets[..chunk.len];
            slots.read_into(chunk.slot * SLOT, octets)?;
            self.talk.say(&ToClient::Free { slot: chunk.slot })?;
            self.talk.moved(chunk.len);
            let talk = &mut self.talk;
            let mut tick = async || alive(talk).await;
            match arrival.take(octets, &mut tick).await.map_err(refused)? {
                Taken::More => {}
                Taken::Asked(want) => self.talk.say(&ToClient::Want(want))?,
                Taken::All(_) => break,
            }
        }
        let talk = &mut self.talk;
        arrival.finish(|| talk.say_alive(&ToClient::Busy)).await.map_err(refused)?;
        self.talk.say(&ToClient::Same)?;
        let served = self.served_tree("put", path, arrival.counts).checked(terms.check);
        Ok(served.over(terms.share))
    }

    /// Gives files and trees, or their names, by the client's RDMA Reads.
    pub(super) async fn get_tree(
        &mut self,
        paths: &[String],
        depth: Depth,
        (wishes, terms): (Wishes, Terms),
        slots: &mut Memory,
    ) -> Result<Served, Failure> {
        if paths.is_empty() || paths.iter().map(String::len).sum::<usize>() > MAX_NAMES {
            return Err(out_of_step());
        }
        let slots = slots.insert(Arc::new(self.slots(Access::REMOTE_READ)?));
        self.talk.say(&ToClient::Tree { window: Window::of(slots) })?;
        let pipe = GivePipe::new(&mut self.talk, slots, self.server.idle);
        let excluded = Excluded::new(&wishes.exclude).map_err(|_| out_of_step())?;
        let (closing, closes) = (wishes.closing, closes(depth, &wishes, terms));
        let mut departure = Departure::new(pipe, depth, terms, (wishes, excluded), Named::There);
        let root = &self.server.root;
        for path in if closing { &[] } else { paths } {
            let (name, place) = name_and_place(path).map_err(refused)?;
            let open = |flags| root.beneath(place, flags);
            departure.add(name.as_bytes(), place, paths.len() == 1, open).await.map_err(refused)?;
        }
        for path in if closes { paths } else { &[] } {
            let (name, place) = name_and_place(path).map_err(refused)?;
            let open = |flags| root.beneath(place, flags);
            departure.close(name.as_bytes(), open).await.map_err(refused)?;
        }
        let (_, _, counts) = departure.finish().await.map_err(refused)?;
        let ToServer::Same = self.hear().await? else { return Err(out_of_step()) };
        if depth.names_only {
            let served = self.served_tree("ls", paths.join(" "), counts);
            return Ok(Served { files: None, unchanged: None, ..served });
        }
        let served = self.served_tree("get", paths.join(" "), counts).checked(terms.check);
        Ok(served.over(terms.share))
    }

    fn served_tree(&self, op: &'static str, mut file: String, counts: Counts) -> Served {
        let Counts { files, octets, unchanged, .. } = counts;
        if file.is_empty() {
            file = ".".into(); // the served directory itself
        }
        self.served(op, file, octets, 0, String::new()).with_files(files, unchanged)
    }
}

/// Tells the client that this end is alive. A client whose files are looked at slowly must not keep
/// its place by that.
async fn alive(talk: &mut Talk) -> Result<(), Failure> {
    talk.say_alive(&ToClient::Busy)?;
    talk.hub.breathe().await;
    Ok(())
}

/// Returns whether a connection does what comes behind all files: one of several does not.
fn closes(depth: Depth, wishes: &Wishes, terms: Terms) -> bool {
    depth.recursive && !depth.names_only && (wishes.closing || terms.share.is_none())
}

/// Returns the name by which a path goes to the client, and its place in the served directory. The
/// contents of a directory, whose path ends with a slash or a dot, go without its name.
fn name_and_place(path: &str) -> Result<(&str, &str), FileError> {
    let place = place_of(path);
    inside(place)?;
    Ok((name_of(path), place))
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Finds the directory into which files would go. The one above it exists.
fn found(root: &Root, path: &str) -> Result<Top, FileError> {
    inside(path)?;
    match root.beneath(path, DIRECTORY) {
        Ok(dir) => Ok(Top { dir, is_new: false, is_missing: false }),
        Err(Errno::ENOENT) => Ok(Top { dir: root.spot(path)?.dir, is_new: false, is_missing: true }),
        Err(error) => Err(FileError::new(path, error)),
    }
}

/// Opens the directory into which files go, and makes it if need be.
fn made(root: &Root, path: &str) -> Result<Top, FileError> {
    let mut is_new = false;
    inside(path)?;
    let opened = match root.beneath(path, DIRECTORY) {
        Err(Errno::ENOENT) => {
            let spot = root.spot(path)?;
            match mkdirat(&spot.dir, &*spot.name, Mode::from_bits_truncate(0o777)) {
                Err(error) if error != Errno::EEXIST => Err(error),
                made => {
                    is_new = made.is_ok();
                    root.beneath(path, DIRECTORY)
                }
            }
        }
        opened => opened,
    };
    let dir = opened.map_err(|error| FileError::new(path, error))?;
    Ok(Top { dir, is_new, is_missing: false })
}

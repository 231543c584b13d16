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
use crate::tree::{Arrival, Counts, Departure, Depth, GivePipe, Named, Taken};

/// Octets of all names in one request.
const MAX_NAMES: usize = MAX_PATH;

impl Client<'_> {
    /// Receives a tree, by the client's RDMA Writes into slots of this end's memory.
    pub(super) async fn put_tree(
        &mut self,
        path: String,
        clobber: Clobber,
        terms: Terms,
        slots: &mut Memory,
    ) -> Result<Served, Failure> {
        self.writable(&path)?;
        let top = made(&self.server.root, path.trim_end_matches('/')).map_err(refused)?;
        let mut arrival = Arrival::new(top, clobber, terms, Named::There, &self.talk.hub).map_err(refused)?;
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
        terms: Terms,
        slots: &mut Memory,
    ) -> Result<Served, Failure> {
        if paths.is_empty() || paths.iter().map(String::len).sum::<usize>() > MAX_NAMES {
            return Err(out_of_step());
        }
        let slots = slots.insert(Arc::new(self.slots(Access::REMOTE_READ)?));
        self.talk.say(&ToClient::Tree { window: Window::of(slots) })?;
        let pipe = GivePipe::new(&mut self.talk, slots, self.server.idle);
        let mut departure = Departure::new(pipe, depth, terms, Named::There);
        for path in paths {
            let path = path.trim_end_matches('/');
            let place = if path.is_empty() { "." } else { path };
            inside(place).map_err(refused)?;
            let name = match place.rsplit('/').next() {
                None | Some(".") => "",
                Some(name) => name,
            };
            let open = |flags| self.server.root.beneath(place, flags);
            departure.add(name.as_bytes(), place, open).await.map_err(refused)?;
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

/// Opens the directory into which files go, and makes it if need be.
fn made(root: &Root, path: &str) -> Result<std::os::fd::OwnedFd, FileError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let place = if path.is_empty() { "." } else { path };
    inside(place)?;
    let opened = match root.beneath(place, flags) {
        Err(Errno::ENOENT) => {
            let spot = root.spot(place)?;
            match mkdirat(&spot.dir, &*spot.name, Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => root.beneath(place, flags),
                Err(error) => Err(error),
            }
        }
        opened => opened,
    };
    opened.map_err(|error| FileError::new(path, error))
}

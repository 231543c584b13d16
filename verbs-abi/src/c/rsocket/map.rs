//! Memory of a program that its peer writes to directly: `riomap`, `riounmap` and `riowrite`.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use libc::{off_t, size_t};
use nix::errno::Errno;
use rddp_rnic::{Access, MemoryRegion, ProtectionDomain, SendWr};

use super::super::border::silent;
use super::calls::{room, send_by};
use super::connection::{Connection, MOST, remote};
use super::socket::socket;
use crate::errors::{Outcome, of_device, of_memory};
use crate::rsocket::{Mapping, Message, Place, Stream};

/// Mappings of both programs.
#[derive(Debug)]
pub(super) struct Mapped {
    pd: ProtectionDomain,
    ours: Vec<Own>,
    /// Mappings of ours, with their numbers, that the peer is to be told of.
    untold: VecDeque<(u16, Mapping)>,
    /// The peer's mappings, by their numbers.
    pub(super) theirs: Vec<Mapping>,
}

/// Memory that this program has mapped.
#[derive(Debug)]
struct Own {
    addr: usize,
    region: MemoryRegion,
    /// A number in the peer's table; none if it is not for the peer.
    number: Option<u16>,
}

impl Mapped {
    pub(super) fn new(pd: ProtectionDomain, theirs: u16) -> Self {
        let theirs = vec![Mapping::default(); theirs.into()];
        Mapped { pd, ours: Vec::new(), untold: VecDeque::new(), theirs }
    }

    /// Returns the lowest number that none of ours has.
    fn free_number(&self, table_len: u16) -> Option<u16> {
        (0..table_len).find(|number| self.ours.iter().all(|own| own.number != Some(*number)))
    }
}

impl Connection {
    /// Registers memory, and has the peer told of it before the next data. Returns its offset: its
    /// address, unless the program has chosen another.
    ///
    /// # Safety
    /// The memory may be written by the peer until it is unmapped, or the connection is gone.
    unsafe fn map(
        &mut self,
        addr: NonNull<u8>,
        len: u32,
        for_peer: bool,
        offset: Option<u64>,
    ) -> Outcome<u64> {
        let table_len = self.stream.as_ref().map_or(0, Stream::table_len);
        let number =
            if for_peer { Some(self.mapped.free_number(table_len).ok_or(Errno::ENOMEM)?) } else { None };
        let mut access = Access::LOCAL_WRITE;
        access.set(Access::REMOTE_WRITE, for_peer);
        // SAFETY: promised by the caller; a program in C has no references that could cover it.
        let region = unsafe { self.mapped.pd.register(addr, len as usize, access) }.map_err(of_device)?;
        let own_addr = addr.addr().get();
        let offset = offset.unwrap_or(own_addr as u64);
        if let Some(number) = number {
            let place = Place { addr: region.remote(0).to, key: region.stag().0, len };
            self.mapped.untold.push_back((number, Mapping { offset, place }));
        }
        self.mapped.ours.push(Own { addr: own_addr, region, number });
        Ok(offset)
    }

    fn unmap(&mut self, addr: usize, len: usize) -> Outcome<()> {
        let is_it = |own: &Own| own.addr == addr && own.region.len() == len;
        let at = self.mapped.ours.iter().position(is_it).ok_or(Errno::EINVAL)?;
        let own = self.mapped.ours.swap_remove(at);
        self.mapped.untold.retain(|(number, _)| own.number != Some(*number));
        own.region.deregister().map_err(|error| of_memory(&error))
    }

    /// Reads a mapping of the peer's, which has been written to our table.
    pub(super) fn note_mapping(&mut self, number: u16) -> Outcome<()> {
        let mut octets = [0; Mapping::LEN];
        let at = Stream::PLACES * Place::LEN + usize::from(number) * Mapping::LEN;
        self.places.read_into(at, &mut octets).map_err(|_| Errno::EIO)?;
        *self.mapped.theirs.get_mut(usize::from(number)).ok_or(Errno::EPROTO)? = Mapping::decode(&octets);
        Ok(())
    }

    /// Tells the peer of mappings. Returns whether it has been told of all.
    pub(super) fn tell_mappings(&mut self) -> Outcome<bool> {
        while let Some((number, mapping)) = self.mapped.untold.front().copied() {
            let Some(stream) = self.stream.as_mut().filter(|stream| stream.has_credit()) else {
                return Ok(false);
            };
            if self.slots == 0 {
                return Ok(false);
            }
            let octets = mapping.encode(stream.is_peer_big_endian());
            let message = Message::Map(number).encode();
            let write = SendWr::write_inline(0, &octets, remote(stream.send_mapping(number)));
            let list = [write.unsignaled(), SendWr::send_inline(0, &message)];
            self.slots -= 1;
            self.mapped.untold.pop_front();
            if self.qp.post_sends(&list).is_err() {
                self.fail(Errno::ECONNRESET);
                return Err(Errno::ECONNRESET);
            }
        }
        Ok(true)
    }

    /// Writes as much of `octets` to the peer's memory as can be. Returns how much that is; none if
    /// this is not the time.
    fn write_to(&mut self, octets: &[u8], offset: u64) -> Outcome<Option<usize>> {
        if !self.tell_mappings()? {
            return Ok(None);
        }
        // As with other rsockets, what has no place is not written, and that is no error.
        let Some(place) = self.mapped.theirs.iter().find_map(|mapping| mapping.from(offset)) else {
            return Ok(Some(0));
        };
        let room = self.free.min(self.outbox.len() - self.next).min(MOST).min(place.len as usize);
        let len = room.min(octets.len());
        if len == 0 || self.slots == 0 {
            return Ok(None);
        }
        self.outbox.write(self.next, &octets[..len]).map_err(|_| Errno::EIO)?;
        let sge = self.outbox.sge(self.next..self.next + len);
        self.next = (self.next + len) % self.outbox.len();
        self.free -= len;
        self.slots -= 1;
        if self.qp.post_send(&SendWr::write(len as u64, sge, remote(place))).is_err() {
            self.fail(Errno::ECONNRESET);
            return Err(Errno::ECONNRESET);
        }
        Ok(Some(len))
    }
}

pub(in crate::c) unsafe extern "C" fn riomap(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = socket(fd).and_then(|socket| {
        let addr = NonNull::new(buf.cast::<u8>()).ok_or(Errno::EINVAL)?;
        let len = u32::try_from(len).ok().filter(|len| *len > 0).ok_or(Errno::EINVAL)?;
        if prot & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
            return Err(Errno::EINVAL);
        }
        let mut state = socket.lock();
        let connection = state.connection().ok_or(Errno::EINVAL)?;
        let offset = (offset != -1).then_some(offset as u64);
        // SAFETY: the function's contract.
        unsafe { connection.map(addr, len, prot & libc::PROT_WRITE != 0, offset) }
    });
    mapped.map_or_else(|error| silent(Err(error)).into(), |offset| offset as off_t)
}

pub(in crate::c) extern "C" fn riounmap(fd: c_int, buf: *mut c_void, len: size_t) -> c_int {
    silent(socket(fd).and_then(|socket| {
        let mut state = socket.lock();
        state.connection().ok_or(Errno::EINVAL)?.unmap(buf.addr(), len)
    }))
}

pub(in crate::c) unsafe extern "C-unwind" fn riowrite(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    // SAFETY: the function's contract; nothing is written.
    let octets: &[u8] = unsafe { room(buf.cast_mut(), len) };
    let sent = send_by(fd, octets, flags, |connection, rest| {
        let at = (offset as u64).wrapping_add((octets.len() - rest.len()) as u64);
        connection.write_to(rest, at)
    });
    sent.unwrap_or_else(|error| silent(Err(error)) as size_t)
}

//! The RDMA connection that a socket of this crate runs over, as one small trait.
//!
//! A [`Transport`] is one connected endpoint with private receive buffers and a way to register
//! memory of the program. It has no clock and does not sleep: requests are posted, and
//! [`poll`](Transport::poll) returns what has happened. What differs between devices stays behind
//! it: a Read's sink needs remote-write rights on iWARP and none elsewhere, and who may send first.
//!
//! A binding implements it over a device; the tests of this crate join two ends in memory.

use core::ops::Range;

/// An endpoint of an RDMA connection, with the memory that it may use.
///
/// Requests that were posted are carried out in order, as far as RDMAP orders them (RFC 5040 §5.5):
/// what a Write places is there before a later Send is delivered; a Read may still be under way
/// when a later Send is delivered, and is over when [`Event::Read`] reports it.
pub trait Transport {
    /// Memory of the program, or private memory of [`allocate`](Self::allocate): a run of octets
    /// that whoever made this value leaves to the socket until it is dropped.
    type Memory: Memory;
    /// A registration of a part of it, which peers can reach by STag and Tagged Offset.
    type Region;

    /// Returns the properties of the endpoint, which stay the same.
    fn facts(&self) -> Facts;

    /// Posts private receive buffers until `count` buffers of `size` octets are in use, posted or
    /// held by the socket. Returns how many there are then, which may be fewer.
    fn add_buffers(&mut self, count: u16, size: u32) -> u16;
    /// Has buffers that are given back be posted with `size` octets from now on. Returns whether
    /// there is memory for that.
    fn grow_buffers(&mut self, size: u32) -> bool;
    /// Returns the octets of the smallest buffer that is in use.
    fn smallest_buffer(&self) -> u32;
    /// Copies octets of a received message out of its buffer.
    fn peek(&self, buffer: Buffer, from: usize, out: &mut [u8]);
    /// Copies octets of a received message into memory of the program.
    fn deliver(
        &mut self,
        buffer: Buffer,
        from: Range<usize>,
        to: &Self::Memory,
        at: usize,
    ) -> Result<(), Fault>;
    /// Gives a buffer of a received message back, which is posted again before this returns.
    fn repost(&mut self, buffer: Buffer) -> Result<(), Lost>;

    /// Returns how many more requests can be posted now.
    fn room(&self) -> usize;
    /// Returns whether every request that was posted is done.
    fn is_idle(&self) -> bool;
    /// Returns whether the peer's host has all that was sent, as far as the transport can tell.
    fn is_delivered(&self) -> bool;
    /// Posts a Send of `front` and, behind it, octets that are copied out of memory before this
    /// returns.
    fn send(&mut self, front: &[u8], payload: Option<(&Self::Memory, Range<usize>)>)
    -> Result<(), PostFault>;
    /// Posts an RDMA Read of the peer's memory into a region from `at` on.
    fn read(
        &mut self,
        id: u64,
        sink: &Self::Region,
        at: usize,
        remote: Remote,
        len: usize,
    ) -> Result<(), PostFault>;
    /// Posts an RDMA Write of a part of a region.
    fn write(
        &mut self,
        id: u64,
        source: &Self::Region,
        part: Range<usize>,
        remote: Remote,
    ) -> Result<(), PostFault>;
    /// Posts an RDMA Write of octets that are copied out of memory before this returns.
    fn write_copy(
        &mut self,
        memory: &Self::Memory,
        part: Range<usize>,
        remote: Remote,
    ) -> Result<(), PostFault>;

    /// Registers a part of memory from which the peer may Read and this end may Write.
    fn register_source(&mut self, memory: &Self::Memory, part: Range<usize>) -> Result<Self::Region, Fault>;
    /// Registers a part of memory into which the peer may Write, and into which this end may Read.
    fn register_sink(&mut self, memory: &Self::Memory, part: Range<usize>) -> Result<Self::Region, Fault>;
    /// Returns where a peer finds the first octet of a region.
    fn remote(&self, region: &Self::Region) -> Remote;
    /// Ends a registration: once this has returned, neither the device nor the peer touches the
    /// memory through it. On a connection with requests or adverts that may still use the region,
    /// it comes after [`abort`](Self::abort).
    fn release(&mut self, region: Self::Region);

    /// Allocates private memory, for Reads that are not placed in memory of the program.
    fn allocate(&mut self, len: usize) -> Option<Self::Memory>;
    /// Copies octets between two pieces of memory.
    fn copy(
        &mut self,
        from: &Self::Memory,
        part: Range<usize>,
        to: &Self::Memory,
        at: usize,
    ) -> Result<(), Fault>;

    /// Returns what has happened since the last call, one event at a time.
    fn poll(&mut self) -> Option<Event>;
    /// Begins to close the connection in order; [`Event::Lost`] reports the end.
    fn disconnect(&mut self);
    /// Resets the connection. Once this has returned, the peer reaches no memory through it, and
    /// no request that was posted goes on.
    fn abort(&mut self);
}

/// A run of octets.
pub trait Memory {
    /// Returns its length in octets.
    fn len(&self) -> usize;
    /// Returns whether it has no octets.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Properties of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of Reads that may be outstanding (ORD).
    pub reads: u16,
    /// Greatest length of one Read, Write or advert of program memory.
    pub longest: u32,
}

/// The number of a private receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer(pub u16);

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The STag.
    pub stag: u32,
    /// The Tagged Offset.
    pub to: u64,
}

impl Remote {
    /// Returns the place `octets` further on; `None` where addresses end.
    #[must_use]
    pub fn skip(self, octets: u32) -> Option<Self> {
        Some(Remote { to: self.to.checked_add(octets.into())?, ..self })
    }
}

/// Something that happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of this many octets lies in a buffer.
    Received(Buffer, usize),
    /// A Read has placed all of its octets.
    Read(u64),
    /// A Write no longer needs its source.
    Written(u64),
    /// Requests were completed: there is more [`room`](Transport::room).
    Room,
    /// The connection is over. Nothing follows.
    Lost(Lost),
}

/// Reasons for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The peer closed it in order.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer, or the network, reset it.
    #[error("the connection was reset")]
    Reset,
    /// A request failed: the peer refused access to its memory, or its frames were wrong.
    #[error("a request failed")]
    Failed,
}

/// Reasons why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostFault {
    /// The queue is full: again after [`Event::Room`].
    #[error("the send queue is full")]
    Full,
    /// The memory cannot be read.
    #[error("the memory cannot be read")]
    Memory,
    /// The connection is over.
    #[error("the connection is over")]
    Lost,
}

/// Reasons why memory cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The range is not mapped, or not with these rights.
    #[error("bad address")]
    Address,
    /// A limit of the process or of the device is reached.
    #[error("no more memory can be registered")]
    Limit,
}

/// Private data of a connection's startup: where Hello and `HelloAck` travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// MPA Request and Reply (RFC 5044 §7.1.1): 512 octets, and their length is told.
    Mpa,
    /// MPA revision 2 with IRD and ORD in front of the private data (RFC 6581 §9): 508 octets.
    EnhancedMpa,
    /// InfiniBand's CM with its own addressing: 92 octets there, 196 back, padded with zeros.
    Cm,
    /// `rdma_cm` with addresses of IP: 56 octets there, 196 back, padded with zeros.
    IpCm,
}

impl Carrier {
    /// Returns the greatest length of private data in a request.
    #[must_use]
    pub fn request_room(self) -> usize {
        match self {
            Carrier::Mpa => 512,
            Carrier::EnhancedMpa => 508,
            Carrier::Cm => 92,
            Carrier::IpCm => 56,
        }
    }

    /// Returns the greatest length of private data in a reply.
    #[must_use]
    pub fn reply_room(self) -> usize {
        match self {
            Carrier::Mpa => 512,
            Carrier::EnhancedMpa => 508,
            Carrier::Cm | Carrier::IpCm => 196,
        }
    }

    /// Returns whether private data arrive with zeros behind them, so that their length says
    /// nothing.
    #[must_use]
    pub fn pads(self) -> bool {
        matches!(self, Carrier::Cm | Carrier::IpCm)
    }
}

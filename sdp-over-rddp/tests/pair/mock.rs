//! Two ends of an RDMA connection in memory, which do what a device may do and no more: requests of
//! an end are carried out in order, completions are told late and, those of Sends against those of
//! receives, in any order. Every choice comes from a seed.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use rddp_sdp::transport::{Buffer, Event, Facts, Fault, Lost, Memory, PostFault, Remote, Transport};

/// Memory of the program that counts as returned once its operation has ended.
#[derive(Clone)]
pub(crate) struct Octets {
    pub(crate) octets: Rc<RefCell<Vec<u8>>>,
    /// Set once the call that lent it has returned: from then on no device may touch it.
    pub(crate) returned: Rc<Cell<bool>>,
}

impl Octets {
    pub(crate) fn new(octets: Vec<u8>) -> Self {
        Octets { octets: Rc::new(RefCell::new(octets)), returned: Rc::default() }
    }

    fn touch(&self) -> std::cell::RefMut<'_, Vec<u8>> {
        assert!(!self.returned.get(), "memory was touched after its call had returned");
        self.octets.borrow_mut()
    }
}

impl Memory for Octets {
    fn len(&self) -> usize {
        self.octets.borrow().len()
    }
}

/// A registration.
pub(crate) struct Region {
    stag: u32,
    memory: Octets,
    part: Range<usize>,
}

struct Registered {
    memory: Octets,
    part: Range<usize>,
    is_sink: bool,
}

/// A request on its way to the other end, or the answer to one.
enum Frame {
    Send(Vec<u8>),
    Write(Remote, Vec<u8>),
    ReadRequest { id: u64, remote: Remote, len: usize },
    ReadResponse { id: u64, octets: Vec<u8> },
}

#[derive(Default)]
struct End {
    out: VecDeque<Frame>,
    buffers: Vec<Vec<u8>>,
    /// Octets of each buffer, and of those that are posted from now on.
    sizes: Vec<usize>,
    size: usize,
    posted: VecDeque<u16>,
    received: VecDeque<Event>,
    completed: VecDeque<Event>,
    told: VecDeque<Event>,
    regions: HashMap<u32, Registered>,
    reads: HashMap<u64, (Octets, usize, u32)>,
    is_dead: bool,
    faults: Faults,
    pub(crate) wire: Vec<u8>,
}

/// Faults that a test orders at one end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// No more registrations.
    pub(crate) no_registration: bool,
    /// The next Read fails, as one of memory that is not there does.
    pub(crate) read_fails: bool,
}

/// The two ends, and what is between them.
pub(crate) struct Wire {
    ends: [End; 2],
    random: u64,
    next_stag: u32,
    /// Requests that were carried out.
    pub(crate) carried_out: usize,
    /// Messages of this end with this MID wait as long as anything else can happen.
    pub(crate) held: Option<(usize, u8)>,
    /// The connection is cut before the request of this number.
    pub(crate) cut_at: Option<usize>,
}

impl Wire {
    pub(crate) fn new(seed: u64) -> Rc<RefCell<Self>> {
        let ends = [End::default(), End::default()];
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Rc::new(RefCell::new(Wire {
            ends,
            random,
            next_stag: 0x100,
            carried_out: 0,
            held: None,
            cut_at: None,
        }))
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(crate) fn order(&mut self, end: usize, faults: Faults) {
        self.ends[end].faults = faults;
    }

    /// Returns the MIDs that an end has sent.
    pub(crate) fn mids(&self, end: usize) -> &[u8] {
        &self.ends[end].wire
    }

    /// Returns whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ends.iter().all(|end| {
            end.out.is_empty() && end.received.is_empty() && end.completed.is_empty() && end.told.is_empty()
        })
    }

    /// Does one thing that is due, chosen at random. Returns whether there was any.
    pub(crate) fn step(&mut self) -> bool {
        let choice = self.random();
        self.step_by(choice)
    }

    /// Does the one of the things that are due which this number chooses.
    pub(crate) fn step_by(&mut self, choice: u64) -> bool {
        let mut due = Vec::new();
        for (n, end) in self.ends.iter().enumerate() {
            let is_due = [!end.out.is_empty(), !end.received.is_empty(), !end.completed.is_empty()];
            due.extend((0..3).filter(|&what| is_due[what]).map(|what| (n, what)));
        }
        let is_held = |&(n, what): &(usize, usize)| what == 0 && self.is_held(n);
        if !due.iter().all(is_held) {
            due.retain(|what| !is_held(what));
        }
        if due.is_empty() {
            return false;
        }
        let (n, what) = due[(choice % due.len() as u64) as usize];
        let end = &mut self.ends[n];
        match what {
            0 => self.carry_out(n),
            1 => end.told.extend(end.received.pop_front()),
            _ => end.told.extend(end.completed.pop_front()),
        }
        true
    }

    fn is_held(&self, n: usize) -> bool {
        let Some((end, mid)) = self.held else { return false };
        n == end && matches!(self.ends[n].out.front(), Some(Frame::Send(message)) if message[0] == mid)
    }

    /// Ends the connection for both.
    pub(crate) fn cut(&mut self, at: [Option<Lost>; 2]) {
        for (end, lost) in self.ends.iter_mut().zip(at) {
            if end.is_dead {
                continue;
            }
            end.out.clear();
            end.reads.clear();
            end.is_dead = true;
            end.received.extend(lost.map(Event::Lost));
        }
    }

    fn carry_out(&mut self, n: usize) {
        if self.cut_at == Some(self.carried_out) {
            return self.cut([Some(Lost::Reset); 2]);
        }
        self.carried_out += 1;
        let Some(frame) = self.ends[n].out.pop_front() else { return };
        let fault = match frame {
            Frame::Send(message) => self.place_send(n, message),
            Frame::Write(remote, octets) => self.place_write(n, remote, &octets),
            Frame::ReadRequest { id, remote, len } => self.answer_read(n, id, remote, len),
            Frame::ReadResponse { id, octets } => self.place_response(1 - n, id, &octets),
        };
        if fault.is_none() {
            self.cut([Some(Lost::Failed); 2]);
        }
    }

    fn place_send(&mut self, from: usize, message: Vec<u8>) -> Option<()> {
        let end = &mut self.ends[1 - from];
        // RFC 5041 §7.2: a Send with no buffer posted ends the stream; credits have to prevent it.
        let buffer = end.posted.pop_front().expect("a Send came with no buffer posted");
        assert!(
            message.len() <= end.sizes[usize::from(buffer)],
            "a message longer than the buffers that were announced"
        );
        let len = message.len();
        end.buffers[usize::from(buffer)] = message;
        end.received.push_back(Event::Received(Buffer(buffer), len));
        let end = &mut self.ends[from];
        end.completed.push_back(Event::Room);
        Some(())
    }

    fn reached(&self, n: usize, remote: Remote, len: usize, is_sink: bool) -> Option<(Octets, usize)> {
        let region = self.ends[n].regions.get(&remote.stag)?;
        let at = usize::try_from(remote.to).ok()?;
        let fits = region.is_sink == is_sink && at + len <= region.part.len();
        fits.then(|| (region.memory.clone(), region.part.start + at))
    }

    fn place_write(&mut self, from: usize, remote: Remote, octets: &[u8]) -> Option<()> {
        let (memory, at) = self.reached(1 - from, remote, octets.len(), true)?;
        memory.touch()[at..at + octets.len()].copy_from_slice(octets);
        self.ends[from].completed.push_back(Event::Room);
        Some(())
    }

    fn answer_read(&mut self, from: usize, id: u64, remote: Remote, len: usize) -> Option<()> {
        if std::mem::take(&mut self.ends[from].faults.read_fails) {
            return None;
        }
        let (memory, at) = self.reached(1 - from, remote, len, false)?;
        let octets = memory.touch()[at..at + len].to_vec();
        self.ends[1 - from].out.push_back(Frame::ReadResponse { id, octets });
        Some(())
    }

    fn place_response(&mut self, to: usize, id: u64, octets: &[u8]) -> Option<()> {
        let (memory, at, _) = self.ends[to].reads.remove(&id)?;
        memory.touch()[at..at + octets.len()].copy_from_slice(octets);
        self.ends[to].completed.push_back(Event::Read(id));
        Some(())
    }
}

/// One end, as a socket sees it.
pub(crate) struct Mock {
    wire: Rc<RefCell<Wire>>,
    end: usize,
    facts: Facts,
}

impl Mock {
    pub(crate) fn pair(wire: &Rc<RefCell<Wire>>) -> [Self; 2] {
        [0, 1].map(|end| {
            let facts = Facts { reads: 4, longest: 1 << 20 };
            Mock { wire: wire.clone(), end, facts }
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut End) -> T) -> T {
        f(&mut self.wire.borrow_mut().ends[self.end])
    }

    fn post(&self, frame: Frame) -> Result<(), PostFault> {
        self.with(|end| match end.is_dead {
            true => Err(PostFault::Lost),
            false => {
                end.out.push_back(frame);
                Ok(())
            }
        })
    }

    fn register(&self, memory: &Octets, part: Range<usize>, is_sink: bool) -> Result<Region, Fault> {
        let mut wire = self.wire.borrow_mut();
        wire.next_stag += 1;
        let stag = wire.next_stag;
        let end = &mut wire.ends[self.end];
        if end.faults.no_registration {
            return Err(Fault::Limit);
        }
        let memory = memory.clone();
        end.regions.insert(stag, Registered { memory: memory.clone(), part: part.clone(), is_sink });
        Ok(Region { stag, memory, part })
    }
}

impl Transport for Mock {
    type Memory = Octets;
    type Region = Region;

    fn facts(&self) -> Facts {
        self.facts
    }

    fn add_buffers(&mut self, count: u16, size: u32) -> u16 {
        self.with(|end| {
            end.size = size as usize;
            for n in end.buffers.len()..usize::from(count) {
                end.buffers.push(Vec::new());
                end.sizes.push(size as usize);
                end.posted.push_back(n as u16);
            }
            count
        })
    }

    fn grow_buffers(&mut self, size: u32) -> bool {
        self.with(|end| end.size = end.size.max(size as usize));
        true
    }

    fn smallest_buffer(&self) -> u32 {
        self.with(|end| end.sizes.iter().min().map_or(0, |size| *size as u32))
    }

    fn peek(&self, buffer: Buffer, from: usize, out: &mut [u8]) {
        self.with(|end| {
            out.copy_from_slice(&end.buffers[usize::from(buffer.0)][from..from + out.len()]);
        });
    }

    fn deliver(&mut self, buffer: Buffer, from: Range<usize>, to: &Octets, at: usize) -> Result<(), Fault> {
        let len = from.len();
        self.with(|end| {
            to.touch()[at..at + len].copy_from_slice(&end.buffers[usize::from(buffer.0)][from]);
        });
        Ok(())
    }

    fn repost(&mut self, buffer: Buffer) -> Result<(), Lost> {
        self.with(|end| {
            end.sizes[usize::from(buffer.0)] = end.size;
            end.posted.push_back(buffer.0);
        });
        Ok(())
    }

    fn room(&self) -> usize {
        64
    }

    fn is_idle(&self) -> bool {
        self.with(|end| end.out.is_empty())
    }

    fn is_delivered(&self) -> bool {
        self.is_idle()
    }

    fn send(&mut self, front: &[u8], payload: Option<(&Octets, Range<usize>)>) -> Result<(), PostFault> {
        let mut message = front.to_vec();
        if let Some((memory, part)) = payload {
            message.extend_from_slice(&memory.touch()[part]);
        }
        self.with(|end| end.wire.push(front[0]));
        self.post(Frame::Send(message))
    }

    fn read(
        &mut self,
        id: u64,
        sink: &Region,
        at: usize,
        remote: Remote,
        len: usize,
    ) -> Result<(), PostFault> {
        assert!(at + len <= sink.part.len(), "a Read beyond its sink");
        let memory = sink.memory.clone();
        self.with(|end| {
            assert!(end.reads.len() < 4, "more Reads than ORD");
            if !end.is_dead {
                end.reads.insert(id, (memory, sink.part.start + at, sink.stag));
            }
        });
        self.post(Frame::ReadRequest { id, remote, len })
    }

    fn write(
        &mut self,
        id: u64,
        source: &Region,
        part: Range<usize>,
        remote: Remote,
    ) -> Result<(), PostFault> {
        let start = source.part.start;
        let octets = source.memory.touch()[start + part.start..start + part.end].to_vec();
        self.with(|end| end.completed.push_back(Event::Written(id)));
        self.post(Frame::Write(remote, octets))
    }

    fn write_copy(&mut self, memory: &Octets, part: Range<usize>, remote: Remote) -> Result<(), PostFault> {
        let octets = memory.touch()[part].to_vec();
        self.post(Frame::Write(remote, octets))
    }

    fn register_source(&mut self, memory: &Octets, part: Range<usize>) -> Result<Region, Fault> {
        self.register(memory, part, false)
    }

    fn register_sink(&mut self, memory: &Octets, part: Range<usize>) -> Result<Region, Fault> {
        self.register(memory, part, true)
    }

    fn remote(&self, region: &Region) -> Remote {
        Remote { stag: region.stag, to: 0 }
    }

    fn release(&mut self, region: Region) {
        self.with(|end| {
            let is_sink_of_a_read = end.reads.values().any(|&(.., stag)| stag == region.stag);
            assert!(!is_sink_of_a_read, "a registration was ended under a Read");
            end.regions.remove(&region.stag);
        });
    }

    fn allocate(&mut self, len: usize) -> Option<Octets> {
        Some(Octets::new(vec![0; len]))
    }

    fn copy(&mut self, from: &Octets, part: Range<usize>, to: &Octets, at: usize) -> Result<(), Fault> {
        let octets = from.touch()[part].to_vec();
        to.touch()[at..at + octets.len()].copy_from_slice(&octets);
        Ok(())
    }

    fn poll(&mut self) -> Option<Event> {
        self.with(|end| end.told.pop_front())
    }

    fn disconnect(&mut self) {
        let mut at = [None; 2];
        at[self.end] = Some(Lost::Closed);
        at[1 - self.end] = Some(Lost::Closed);
        let mut wire = self.wire.borrow_mut();
        // What was posted before is still carried out, as a FIN comes behind it.
        while !wire.ends[self.end].is_dead && !wire.ends[self.end].out.is_empty() {
            wire.carry_out(self.end);
        }
        wire.cut(at);
    }

    fn abort(&mut self) {
        let mut at = [None; 2];
        at[1 - self.end] = Some(Lost::Reset);
        self.wire.borrow_mut().cut(at);
        self.with(|end| {
            end.received.clear();
            end.completed.clear();
            end.told.clear();
        });
    }
}

//! One connection with its regions, receives and adverts, as all scenarios begin.

use std::collections::VecDeque;
use std::fs::File;
use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, AsyncEventKind, Completed, Completion, CompletionQueue, ConnectError, ConnectRequest, Listener,
    MemoryRegion, Negotiated, ProtectionDomain, QpConfig, QpState, QueuePair, RecvWr, Remote, Revision, Rnic,
    SendWr, Stag, Status,
};

use crate::Outcome;
use crate::fault::TRUNCATED;
use crate::options::{End, Item, Options};
use crate::pattern::{FILL, FILL_WORD, PRIVATE, pattern};
use crate::transfer::immediate;

pub const MESSAGE: usize = 16;
pub const MARGIN: usize = 61;
pub const TOKEN: usize = 4096;
const ADVERTS: usize = 3;
/// DONE, VERIFIED, spare.
const LAST_RECEIVES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct Advert {
    pub to: u64,
    pub stag: Stag,
    pub len: u32,
}

pub struct Link<'a> {
    pub options: &'a Options,
    pub number: u64,
    rnic: &'a Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    pub qp: QueuePair,
    messages: MemoryRegion,
    pub inbox: MemoryRegion,
    pub source: MemoryRegion,
    /// The file of the source, if it has one.
    pub file: Option<File>,
    pub sink: MemoryRegion,
    pub token: MemoryRegion,
    pub peer_inbox: Option<Advert>,
    pub peer_source: Option<Advert>,
    pub peer_token: Option<Advert>,
    received: VecDeque<Completion>,
    sent: VecDeque<Completion>,
}

impl<'a> Link<'a> {
    /// Prepares everything up to the posted receives. The token has `rights`, and a PD of its own
    /// if `apart`.
    pub fn prepare(
        options: &'a Options,
        number: u64,
        rnic: &'a Rnic,
        rights: Access,
        apart: bool,
    ) -> Outcome<Self> {
        let pd = rnic.alloc_pd();
        // Only software has it.
        let lacking = if is_device(rnic) { Access::REMOTE_INVALIDATE } else { Access::empty() };
        let is_atomic = options.ops.iter().any(|item| item.is_atomic());
        let more = if is_atomic { Access::REMOTE_ATOMIC } else { Access::empty() };
        let rights = (rights - lacking) | more;
        let (items, receives) =
            (options.items(), ADVERTS + options.received_of(options.role.other()) + LAST_RECEIVES);
        let cq = rnic.create_cq(items + receives + 64)?;
        let config = QpConfig { max_send: items + 64, max_recv: receives, ..QpConfig::new(&cq) };
        let qp = pd.create_qp(&config)?;
        let len = 2 * MARGIN + items * options.size;
        let filled = |pd: &ProtectionDomain, len: usize, access: Access| -> Outcome<MemoryRegion> {
            let region = pd.allocate(len, access)?;
            region.write(0, &vec![FILL; len])?;
            Ok(region)
        };
        let other_pd = rnic.alloc_pd();
        let mut link = Link {
            messages: filled(&pd, MESSAGE * (ADVERTS + LAST_RECEIVES), Access::LOCAL_WRITE)?,
            inbox: filled(&pd, len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            source: filled(&pd, len, Access::LOCAL_WRITE | Access::REMOTE_READ)?,
            sink: filled(&pd, len, Access::LOCAL_WRITE)?,
            token: filled(if apart { &other_pd } else { &pd }, TOKEN, rights)?,
            options,
            number,
            rnic,
            pd,
            file: None,
            cq,
            qp,
            peer_inbox: None,
            peer_source: None,
            peer_token: None,
            received: VecDeque::new(),
            sent: VecDeque::new(),
        };
        for k in 0..items {
            link.source
                .write(MARGIN + k * options.size, &link.pattern_of(options.role, k as u64, options.size))?;
        }
        if options.file {
            link.move_source_to_file()?;
        }
        link.post_receives()?;
        Ok(link)
    }

    fn move_source_to_file(&mut self) -> Outcome<()> {
        let path = std::env::temp_dir().join(format!("siw-peer-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        let len = self.source.len();
        self.source.write_to(&file, 0, 0..len)?;
        self.source = self.pd.register_file(file.try_clone()?, 0..len as u64, Access::REMOTE_READ)?;
        self.file = Some(file);
        Ok(())
    }

    fn post_receives(&self) -> Outcome<()> {
        let options = self.options;
        for advert in 0..ADVERTS {
            self.qp.post_recv(RecvWr::one(0, self.messages.sge(advert * MESSAGE..(advert + 1) * MESSAGE)))?;
        }
        if options.does(options.role.other()) {
            for k in (0..options.items()).filter(|&k| options.item(k).is_received()) {
                let at = MARGIN + k * options.size;
                self.qp.post_recv(RecvWr::one(0, self.inbox.sge(at..at + options.size)))?;
            }
        }
        for last in ADVERTS..ADVERTS + LAST_RECEIVES {
            self.qp.post_recv(RecvWr::one(0, self.messages.sge(last * MESSAGE..(last + 1) * MESSAGE)))?;
        }
        Ok(())
    }

    pub fn say(&self, what: &str) {
        if self.number == 0 {
            println!("{what}");
        }
    }

    pub fn pattern_of(&self, end: End, item: u64, len: usize) -> Vec<u8> {
        pattern(self.options.seed.wrapping_add(self.number), end, item, len)
    }

    fn private_data(&self) -> (Vec<u8>, Vec<u8>) {
        let (request, reply) = self.options.private_lengths(self.number);
        (self.pattern_of(End::Active, PRIVATE, request), self.pattern_of(End::Passive, PRIVATE, reply))
    }

    // Connections

    /// Takes the passive end's Request, and checks its private data.
    pub fn take_request(&self, listener: &Listener) -> Outcome<ConnectRequest> {
        let request = listener.accept(Some(self.options.timeout))?.ok_or("nobody connects")?;
        self.expect(
            self.says(request.private_data(), &self.private_data().0),
            "private data of the Request",
        )?;
        Ok(request)
    }

    pub fn accept(&self, request: ConnectRequest) -> Outcome<()> {
        let (_, reply) = self.private_data();
        let negotiated = request.accept_with(
            &self.qp,
            &rddp_rnic::ConnectOptions { private_data: reply, ..self.options.connect_options() },
        )?;
        self.check_negotiated(negotiated.as_ref())
    }

    pub fn reject(&self, request: ConnectRequest) -> Outcome<()> {
        Ok(request.reject(&self.private_data().1)?)
    }

    /// Connects. The outer error is one that no peer should cause.
    pub fn connect(&self) -> Outcome<Result<(), ConnectError>> {
        let (request, reply) = self.private_data();
        let options = rddp_rnic::ConnectOptions { private_data: request, ..self.options.connect_options() };
        match self.qp.connect(self.options.addr, &options) {
            Ok(connected) => {
                self.expect(self.says(&connected.private_data, &reply), "private data of the Reply")?;
                self.check_negotiated(connected.negotiated.as_ref())?;
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    pub fn check_rejection(&self, error: &ConnectError) -> Outcome<()> {
        match error {
            ConnectError::Rejected { private_data } => {
                self.expect(self.says(private_data, &self.private_data().1), "private data of the rejection")
            }
            error => Err(format!("not rejected, but: {error}").into()),
        }
    }

    /// Returns whether private data are what the peer has said; InfiniBand's have zeros behind.
    fn says(&self, private_data: &[u8], said: &[u8]) -> bool {
        let padding = private_data.strip_prefix(said);
        padding.is_some_and(|padding| {
            padding.is_empty() || self.is_infiniband() && padding == vec![0; padding.len()]
        })
    }

    /// Returns whether a device of the host moves the octets, which `RDDP_DEVICE` names.
    pub fn is_device(&self) -> bool {
        is_device(self.rnic)
    }

    /// Returns whether that is one of InfiniBand's protocol: RNICs have no Immediate Data.
    pub fn is_infiniband(&self) -> bool {
        self.is_device() && self.rnic.capabilities().immediate_len > 0
    }

    fn check_negotiated(&self, negotiated: Option<&Negotiated>) -> Outcome<()> {
        if self.is_device() {
            self.say("connected by a device");
            return self.expect(negotiated.is_none(), "that a device tells nothing of MPA");
        }
        let negotiated = negotiated.ok_or("the connection is none of iWARP")?;
        let options = self.options;
        self.expect(negotiated.revision == options.revision, "the revision")?;
        // A Read as RTR raises a depth of 0.
        let depths = (negotiated.ird, negotiated.ord);
        let right = depths == (options.reads, options.reads) || options.reads == 0;
        if options.revision == Revision::Two && !right {
            return Err(format!("IRD and ORD are {depths:?}").into());
        }
        self.expect(!options.crc || negotiated.crc, "CRC, which was asked for")?;
        self.expect(negotiated.large_fpdus == (options.large == Some(true)), "consent to large FPDUs")?;
        self.say(&format!("connected: {negotiated:?}"));
        Ok(())
    }

    /// Checks that what was sent went in FPDUs longer than the segments of Ethernet, where the peer
    /// has agreed, and in none such else.
    pub fn check_fpdus_sent(&self) -> Outcome<()> {
        let counters = self.qp.counters();
        let mean = counters.octets_sent / counters.fpdus_sent.max(1);
        match self.options.large {
            Some(true) => self.expect(mean > 3000, "FPDUs as long as the peer has agreed"),
            Some(false) => self.expect(mean < 1500, "FPDUs that fit into a segment"),
            None => Ok(()),
        }
    }

    /// Exchanges the adverts: steps 3 to 5.
    pub fn exchange_adverts(&mut self) -> Outcome<()> {
        if self.options.role == End::Active {
            self.send_adverts()?;
            self.nudge_until_heard()?;
            self.expect_adverts()
        } else {
            self.expect_adverts()?;
            self.send_adverts()
        }
    }

    fn send_adverts(&mut self) -> Outcome<()> {
        let octets: Vec<Vec<u8>> = [&self.inbox, &self.source, &self.token]
            .map(|region| {
                let len = u32::try_from(region.len()).unwrap_or(u32::MAX);
                [&region.remote(0).to_octets()[..], &len.to_be_bytes()].concat()
            })
            .into();
        for advert in octets {
            self.send_octets(&advert)?;
        }
        self.say("sent three adverts");
        Ok(())
    }

    fn expect_adverts(&mut self) -> Outcome<()> {
        let mut adverts = Vec::new();
        for number in 0..ADVERTS {
            let octets = self.expect_octets(number)?;
            let (remote, len) = octets.split_first_chunk().ok_or("a short advert")?;
            let Remote { stag, to } = Remote::from_octets(remote);
            adverts.push(Advert { to, stag, len: u32::from_be_bytes(len.try_into()?) });
        }
        let wanted = [self.inbox.len(), self.source.len(), TOKEN];
        let lengths = adverts.iter().map(|advert| advert.len as usize);
        self.expect(lengths.eq(wanted), "lengths of the peer's regions")?;
        self.say(&format!("received three adverts: {adverts:x?}"));
        let mut adverts = adverts.into_iter();
        (self.peer_inbox, self.peer_source, self.peer_token) =
            (adverts.next(), adverts.next(), adverts.next());
        Ok(())
    }

    fn nudge_until_heard(&mut self) -> Outcome<()> {
        for doublings in 0..10 {
            if self.receive_within(Duration::from_millis(50 << doublings))? {
                return Ok(());
            }
            println!("nudge");
            self.post(&SendWr::write_inline(0, &[], Remote { stag: Stag(1), to: 0 }))?;
            self.expect_sent(Status::Success)?;
        }
        Err("the peer stays silent".into())
    }

    // Completions

    pub fn receive_within(&mut self, patience: Duration) -> Outcome<bool> {
        let deadline = Instant::now() + patience;
        while self.received.is_empty() && Instant::now() < deadline {
            self.sort(deadline)?;
        }
        Ok(!self.received.is_empty())
    }

    /// Waits for completions and puts them where they belong.
    fn sort(&mut self, deadline: Instant) -> Outcome<()> {
        self.cq.wait(Some(deadline.saturating_duration_since(Instant::now())))?;
        while let Some(completion) = self.cq.poll_one() {
            match completion.completed {
                Completed::Receive | Completed::ReceiveImmediate => self.received.push_back(completion),
                _ => self.sent.push_back(completion),
            }
        }
        Ok(())
    }

    /// Returns the next receive's completion, which must have this status.
    pub fn expect_received(&mut self, status: Status) -> Outcome<Completion> {
        if !self.receive_within(self.options.timeout)? {
            return Err("no receive completes".into());
        }
        let completion = self.received.pop_front().ok_or("no receive")?;
        match completion.status == status {
            true => Ok(completion),
            false => Err(format!("a receive ends with {:?}, not {status:?}", completion.status).into()),
        }
    }

    /// Returns the next completion of the send queue, which must have this status.
    pub fn expect_sent(&mut self, status: Status) -> Outcome<Completion> {
        let completion = self.next_sent()?;
        match completion.status == status {
            true => Ok(completion),
            false => {
                Err(format!("{:?} ends with {:?}, not {status:?}", completion.completed, completion.status)
                    .into())
            }
        }
    }

    /// Waits for a completion of the send queue.
    pub fn sent_within(&mut self, patience: Duration) -> Outcome<bool> {
        let deadline = Instant::now() + patience;
        while self.sent.is_empty() && Instant::now() < deadline {
            self.sort(deadline)?;
        }
        Ok(!self.sent.is_empty())
    }

    /// Takes the next completion of the send queue.
    pub fn next_sent(&mut self) -> Outcome<Completion> {
        self.sent_within(self.options.timeout)?;
        Ok(self.sent.pop_front().ok_or("no request completes")?)
    }

    pub fn post(&self, wr: &SendWr) -> Outcome<()> {
        Ok(self.qp.post_send(wr)?)
    }

    pub fn send_octets(&mut self, octets: &[u8]) -> Outcome<()> {
        self.post(&SendWr::send_inline(0, octets))?;
        self.expect_sent(Status::Success).map(drop)
    }

    /// Returns the 16 octets of the message whose receive is at `place` of the messages region.
    fn expect_octets(&mut self, place: usize) -> Outcome<Vec<u8>> {
        let completion = self.expect_received(Status::Success)?;
        self.expect(completion.byte_len as usize == MESSAGE, "length of a message")?;
        Ok(self.messages.read(place * MESSAGE, MESSAGE)?)
    }

    pub fn send_message(&mut self, name: &str, value: u64) -> Outcome<()> {
        self.send_octets(&message(name, value))?;
        self.say(&format!("sent {name} {value}"));
        Ok(())
    }

    /// Expects message `nth` (0 DONE, 1 VERIFIED).
    pub fn expect_message(&mut self, nth: usize, name: &str, value: u64) -> Outcome<()> {
        let octets = self.expect_octets(ADVERTS + nth)?;
        self.expect(octets == message(name, value), name)?;
        self.say(&format!("received {name} {value}"));
        Ok(())
    }

    /// Checks that a receive's completion shows its item's length, flags and Immediate Data.
    pub fn check_flags(&self, k: usize, completion: &Completion) -> Outcome<()> {
        let Item::Send { solicited, invalidate } = self.options.item(k) else {
            return self.expect(completion.immediate == Some(immediate(k)), "the Immediate Data");
        };
        self.expect(completion.byte_len as usize == self.options.size, "length of a Send")?;
        if self.is_device() {
            return Ok(()); // of the rest, devices tell nothing
        }
        self.expect(completion.solicited == solicited, "the Solicited Event flag")?;
        self.expect(completion.invalidated == invalidate.then(|| self.token.stag()), "the invalidated STag")
    }

    // The end

    pub fn has_ended(&self) -> bool {
        matches!(self.qp.state(), QpState::Idle | QpState::Error)
    }

    /// Waits until the connection is over; returns the events that reported it.
    pub fn wait_for_end(&self) -> Outcome<Vec<AsyncEventKind>> {
        let deadline = Instant::now() + self.options.timeout;
        let mut events = Vec::new();
        loop {
            while let Some(event) = self.rnic.wait_async_event(Some(Duration::from_millis(5)))? {
                events.push(event.kind);
            }
            if self.has_ended() {
                self.say(&format!("the connection has ended: {events:?}"));
                return Ok(events);
            }
            if Instant::now() > deadline {
                return Err(format!("the connection does not end: {:?}, {events:?}", self.qp.state()).into());
            }
        }
    }

    /// Checks all memory that the peer could reach.
    pub fn check_regions(&self) -> Outcome<()> {
        let options = self.options;
        let peer = options.role.other();
        self.check_slots(&self.inbox, options.does(peer), false, "inbox")?;
        for k in (0..options.items()).filter(|_| options.kind != TRUNCATED) {
            let wanted = self.pattern_of(options.role, k as u64, options.size);
            let source = self.source.read(MARGIN + k * options.size, options.size)?;
            self.expect(source == wanted, "the source")?;
        }
        self.expect(self.token.read(0, TOKEN)?.iter().all(|&octet| octet == FILL), "the token")?;
        self.say("inbox, source and token are as they have to be");
        Ok(())
    }

    /// Checks that the slots of Reads (or of all else) hold the peer's items if any were
    /// done, and fill elsewhere.
    pub fn check_slots(&self, region: &MemoryRegion, done: bool, reads: bool, name: &str) -> Outcome<()> {
        let options = self.options;
        for k in 0..options.items() {
            let item = options.item(k);
            let wanted = match item {
                // What was there before the addition, and before it is taken back.
                Item::CmpSwap if done && reads => (FILL_WORD + 1).to_ne_bytes().to_vec(),
                Item::Read if done && reads => self.pattern_of(options.role.other(), k as u64, options.size),
                _ if done && !reads && item.is_placed() => {
                    self.pattern_of(options.role.other(), k as u64, options.size)
                }
                _ => vec![FILL; options.size],
            };
            if region.read(MARGIN + k * options.size, options.size)? != wanted {
                return Err(format!("the {name}'s slot {k} is not as it has to be").into());
            }
        }
        let margins = [region.read(0, MARGIN)?, region.read(region.len() - MARGIN, MARGIN)?].concat();
        self.expect(margins.iter().all(|&octet| octet == FILL), "the margins")
    }

    /// Takes the completion of a request that the peer refuses. Of a Write, an RNIC says what it
    /// likes: it has handed it to TCP, or the end of the connection was faster.
    pub fn expect_refused(&mut self, is_read: bool) -> Outcome<()> {
        let is_rnic = self.is_device() && !self.is_infiniband();
        match is_read {
            true if is_rnic => self.expect_sent(Status::Flushed).map(drop),
            false if is_rnic => self.next_sent().map(drop),
            false if !self.is_infiniband() => self.expect_sent(Status::Success).map(drop),
            _ => self.expect_sent(Status::RemoteAccess).map(drop),
        }
    }

    pub fn expect(&self, right: bool, what: &str) -> Outcome<()> {
        if right { Ok(()) } else { Err(format!("not as expected: {what}").into()) }
    }
}

fn is_device(rnic: &Rnic) -> bool {
    rnic.capabilities() != Rnic::CAPABILITIES
}

/// Returns a message: a name of eight octets and a number.
pub fn message(name: &str, value: u64) -> Vec<u8> {
    [format!("{name:8}").as_bytes(), &value.to_be_bytes()].concat()
}

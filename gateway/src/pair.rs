//! One connection: a socket of TCP, and an endpoint of a device.
//!
//! A turn takes what either side has, as far as there is room for it, and gives on what is due.
//! Where nothing moves, the thread sleeps. It does not look at a side for which it has no room: the
//! plain host is held back by TCP's window, and the device's host by receives that are missing.
//!
//! The end of one side becomes that of the other one: FIN becomes a disconnect when all that the
//! plain host has asked for is done, and a disconnect becomes FIN behind the last message.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use rddp_rdma::{Completion, Status};
use rddp_rdmap::TerminateCode;
use rddp_verbs_device::{Endpoint, Event};
use socket2::SockRef;

use crate::bridge::{Bridge, Counts, Stop};
use crate::buffers::{Arrived, Train};
use crate::opening::{Opened, Opening, Pool, poll_until};
use crate::reason::Reason;
use crate::watch::Watch;

/// Time in which the other side has to end, once one has.
const LINGER: Duration = Duration::from_secs(10);
/// Time in which both sides have to end, when the gateway stops.
const STOPPING: Duration = Duration::from_secs(3);
/// Time after which a connection that does not sleep looks whether the gateway stops.
const LOOK: Duration = Duration::from_millis(100);

/// A connection of the gateway: its socket, its endpoint at the device, and what goes between.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    tcp: TcpStream,
    endpoint: Endpoint,
    memory: Pool,
    bridge: Bridge,
    /// Readable when the gateway stops.
    stop: &'a EventFd,
    arrived: Arrived,
    train: Train,
    completions: Vec<Completion>,
    /// The reason of the end, once one side has ended.
    reason: Option<Reason>,
    /// The Terminate that is on its way to TCP.
    owed: Option<TerminateCode>,
    /// The moment at which the connection is over, whatever is missing.
    until: Option<Instant>,
    /// The plain host sends nothing more that counts, and has sent its FIN.
    plain_ends: bool,
    plain_closed: bool,
    device_closed: bool,
    /// The device was told that the connection ends.
    closes: bool,
    /// The gateway stops.
    stops: bool,
    finished: bool,
    look: Instant,
    probe: Instant,
    probe_time: Duration,
    watch: Watch<'a>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(opened: Opened, opening: Opening<'a>, watch: Watch<'a>) -> Self {
        let (stop, probe_time) = (opening.stop, opening.options.probe_time);
        let Opened { tcp, endpoint, memory, bridge } = opened;
        Pair {
            tcp,
            endpoint,
            memory,
            bridge,
            stop,
            arrived: Arrived::new(),
            train: Train::default(),
            completions: Vec::new(),
            reason: None,
            owed: None,
            until: None,
            plain_ends: false,
            plain_closed: false,
            device_closed: false,
            closes: false,
            stops: false,
            finished: false,
            look: Instant::now() + LOOK,
            probe: Instant::now() + probe_time,
            probe_time,
            watch,
        }
    }

    /// Carries the connection to its end.
    pub(crate) fn run(mut self) -> (Counts, Reason) {
        let cut = self.carry().err();
        let reason = match (self.reason, cut) {
            // An end is in order when all has been done that comes before it.
            (Some(reason), Some(cut)) if reason.is_orderly() => cut,
            (reason, cut) => reason.or(cut).unwrap_or(Reason::DeviceClosed),
        };
        (self.bridge.counts(), reason)
    }

    fn carry(&mut self) -> Result<(), Reason> {
        loop {
            let mut moved = self.turn()?;
            self.watch.look(self.bridge.counts());
            // Looked at in each turn: a plain host may always have more to say.
            let is_late = self.until.is_some_and(|until| Instant::now() >= until);
            if self.device_closed && self.finished && (self.plain_closed || is_late) {
                return Ok(());
            }
            if is_late {
                return Err(Reason::TooLong("the end of the connection"));
            }
            if Instant::now() >= self.look {
                moved |= self.look();
            }
            if !moved {
                self.sleep()?;
            }
        }
    }

    /// Looks whether the gateway has begun to stop: a connection that always has something to do
    /// never sleeps. What the device tells comes first: that the last one is removed stops a
    /// gateway, too.
    fn look(&mut self) -> bool {
        self.look = Instant::now() + LOOK;
        let mut stop = [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        let stops = !self.stops && poll(&mut stop, PollTimeout::ZERO).is_ok_and(|count| count > 0);
        if stops {
            self.stopped();
        }
        stops
    }

    /// Does what can be done now; returns whether there may be more.
    fn turn(&mut self) -> Result<bool, Reason> {
        let mut moved = self.hear_device()?;
        moved |= self.hear_plain();
        moved |= self.tell_device()?;
        moved |= self.tell_plain();
        moved |= self.close();
        Ok(moved)
    }

    /// Takes the device's events and completions.
    fn hear_device(&mut self) -> Result<bool, Reason> {
        let mut moved = false;
        // Before the completions: by its end, all messages of the device's host have come.
        while let Some(event) = self.endpoint.event()? {
            moved = true;
            let reason = match event {
                Event::Disconnected | Event::Failed(_) => Reason::DeviceClosed,
                Event::Removed => Reason::removed(self.endpoint.device()),
                Event::Resolved | Event::Connected(_) => continue,
            };
            self.device_closed = true;
            self.ends(reason, LINGER);
        }
        self.endpoint.poll(&mut self.completions)?;
        // The plain host is told nothing before its first FPDU, neither messages nor faults: they
        // wait for that.
        let tells = |completion: &Completion| completion.status != Status::Flushed;
        let is_held = !self.bridge.may_send() && self.completions.iter().any(tells);
        self.plain_ends |= self.device_closed && !is_held;
        if is_held && !self.plain_ends {
            return Ok(moved);
        }
        for completion in std::mem::take(&mut self.completions) {
            moved = true;
            if let Err(stop) = self.bridge.completed(&completion) {
                self.fail(&stop);
            }
        }
        Ok(moved)
    }

    /// Takes FPDUs of the plain host.
    fn hear_plain(&mut self) -> bool {
        let mut moved = self.read();
        while !self.plain_ends && self.bridge.has_room() {
            match self.bridge.arrived(self.arrived.front(), &self.memory.octets) {
                Ok(0) => break,
                Ok(used) => {
                    self.arrived.drop(used);
                    moved = true;
                }
                Err(stop) => self.fail(&stop),
            }
        }
        self.bridge.no_more();
        if self.plain_closed && !self.plain_ends && self.bridge.has_room() {
            self.plain_ends = true;
            let is_whole = self.arrived.front().is_empty() && self.bridge.is_between_messages();
            self.ends(if is_whole { Reason::PlainClosed } else { Reason::PlainCut }, LINGER);
        }
        moved
    }

    fn wants_octets(&self) -> bool {
        !self.plain_closed && (self.plain_ends || self.bridge.has_room() && self.arrived.has_space())
    }

    /// Takes octets from TCP. Behind the end, they are read and dropped: TCP would reset the
    /// connection, and what is on its way with it.
    fn read(&mut self) -> bool {
        if !self.wants_octets() {
            return false;
        }
        match self.arrived.read(&self.tcp, !self.plain_ends) {
            Ok(0) => self.plain_closed = true,
            Ok(_) => {}
            Err(error) if is_pause(&error) => return false,
            Err(error) => self.tcp_failed(error),
        }
        true
    }

    /// Posts requests and receives.
    fn tell_device(&mut self) -> Result<bool, Reason> {
        let mut moved = false;
        while self.endpoint.is_connected()
            && let Some(request) = self.bridge.next_request()
        {
            moved = true;
            if let Err(error) = self.endpoint.post_send(&request) {
                let stop = self.bridge.refused(error);
                self.fail(&stop);
            }
        }
        while let Some(request) = self.bridge.next_receive() {
            moved = true;
            // One that comes behind the end is not needed.
            if let Err(error) = self.endpoint.post_receive(&request)
                && self.endpoint.is_connected()
            {
                return Err(error.into());
            }
        }
        Ok(moved)
    }

    /// Gives TCP what it takes.
    fn tell_plain(&mut self) -> bool {
        if self.train.octets.is_empty() && !self.is_broken() {
            self.train.ends = self.bridge.leave(&mut self.train.octets, &self.memory.octets);
        }
        if self.train.octets.is_empty() || self.finished {
            return false;
        }
        let flags = if self.train.ends { libc::MSG_EOR } else { 0 };
        let rest = &self.train.octets[self.train.sent..];
        match SockRef::from(&self.tcp).send_with_flags(rest, flags | libc::MSG_NOSIGNAL) {
            Ok(count) => self.train.sent += count,
            Err(error) if is_pause(&error) => return false,
            Err(error) => self.tcp_failed(error),
        }
        if self.train.sent == self.train.octets.len() {
            self.train.octets.clear();
            self.train.sent = 0;
            if let (Some(Reason::Broken { code, .. }), Some(sent)) = (&mut self.reason, self.owed.take()) {
                *code = Some(sent);
            }
        }
        true
    }

    /// Ends one side when the other one has ended, and all is done that comes before that.
    fn close(&mut self) -> bool {
        let is_quiet = self.bridge.is_quiet() || self.device_closed;
        let is_told = self.train.octets.is_empty() && (self.is_broken() || !self.bridge.has_more());
        let closes =
            self.plain_ends && !self.closes && (self.is_broken() || self.finished || is_quiet && is_told);
        if closes {
            self.closes = true;
            self.endpoint.close();
        }
        let finishes =
            !self.finished && is_told && (self.device_closed && self.plain_ends || self.is_broken());
        if finishes {
            self.finished = true;
            let _ = self.tcp.shutdown(Shutdown::Write);
        }
        closes || finishes
    }

    fn is_broken(&self) -> bool {
        matches!(self.reason, Some(Reason::Broken { .. } | Reason::Tcp(_)))
    }

    /// Notes that a side ends, and why, unless one has before.
    fn ends(&mut self, reason: Reason, time: Duration) {
        self.reason.get_or_insert(reason);
        self.until.get_or_insert_with(|| Instant::now() + time);
    }

    /// Ends both sides because of a fault, of which the plain host is told.
    fn fail(&mut self, stop: &Stop) {
        if self.is_broken() {
            return;
        }
        self.reason = Some(Reason::of(stop));
        self.plain_ends = true;
        if let Some(trouble) = stop.trouble() {
            self.owed = self.bridge.terminate(&trouble, &mut self.train.octets);
        }
        // An RNIC tells of the end when its driver comes to it.
        self.until.get_or_insert_with(|| Instant::now() + LINGER);
    }

    fn tcp_failed(&mut self, error: io::Error) {
        (self.plain_ends, self.plain_closed, self.finished) = (true, true, true);
        self.train = Train::default();
        if !self.is_broken() {
            self.ends(Reason::Tcp(error), LINGER);
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) -> Result<(), Reason> {
        self.endpoint.arm()?;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.wants_octets());
        flags.set(PollFlags::POLLOUT, !self.train.octets.is_empty() && !self.finished);
        let stop = if self.stops { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut fds = [
            PollFd::new(self.endpoint.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stop.as_fd(), stop),
            PollFd::new(self.tcp.as_fd(), flags),
        ];
        // A socket from which nothing is wanted tells of a reset; a closed one does so for ever.
        let count = if flags.is_empty() && self.plain_closed { 2 } else { 3 };
        let due = self.watch.due(self.bridge.counts());
        let until = [self.until, self.endpoint.deadline(), Some(self.probe), due].into_iter().flatten().min();
        poll_until(&mut fds[..count], until)?;
        let [_, is_stopped, is_ready] = fds.map(|fd| fd.any().unwrap_or(true));
        if is_stopped {
            self.look = Instant::now();
        }
        if is_ready && flags.is_empty() {
            let error = self.tcp.take_error()?;
            self.tcp_failed(error.unwrap_or_else(|| ErrorKind::ConnectionReset.into()));
        }
        self.probe();
        Ok(())
    }

    /// Asks the device's host at times whether it is still there.
    fn probe(&mut self) {
        if Instant::now() >= self.probe {
            self.probe = Instant::now() + self.probe_time;
            // One that fails ends the connection, which is told by an event.
            let _ = self.endpoint.probe();
        }
    }

    /// Begins the end of a connection whose gateway stops.
    fn stopped(&mut self) {
        self.stops = true;
        self.plain_ends = true;
        self.reason.get_or_insert(Reason::Stopped);
        let latest = Instant::now() + STOPPING;
        self.until = Some(self.until.map_or(latest, |until| until.min(latest)));
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

//! The query to the iWARP port mapper (UDP port 3935) of the peer's host: which TCP port an RNIC
//! really listens on.
//!
//! Drivers of hardware RNICs listen on ports of their own choice, and register them with their
//! host's mapper (`iwpmd`). A host without a mapper does not answer; then the port is used as it
//! was given. TCP connects to that port meanwhile: a host that drops the query, or whose ICMP has
//! a limit, costs milliseconds and not the time of all tries. The messages and the order of a
//! question are in [`rddp_iwarp::port_mapper`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use rddp_iwarp::port_mapper::{self, Answer, Frame, PORT};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::io::ready_set::epoll_timeout;

/// The time that each try waits for an answer.
const TRIES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

/// The time before the first look at whether TCP is connected. The time to the next one doubles.
const FIRST_LOOK: Duration = Duration::from_millis(4);

/// The time that each try waits of [`ask`], whose caller wants an answer more than a connection.
const PATIENT_TRIES: [Duration; 3] = [Duration::from_millis(300); 3];

/// The number of datagrams that are read in one turn of the background thread, so that a flood of
/// them does not keep other connections waiting.
const BATCH: usize = 16;

/// A port mapper's answer about an address.
///
/// ```
/// use rddp_rnic::{MapperAnswer, ask_port_mapper_at};
/// // Nobody answers at this UDP port of this host.
/// let answer = ask_port_mapper_at("127.0.0.1:7174".parse()?, 9)?;
/// assert_eq!(answer, MapperAnswer::None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapperAnswer {
    /// The service is at this port.
    Mapped(u16),
    /// The port mapper does not know the service.
    Unknown,
    /// No port mapper answers: the service is at the port that was named.
    None,
}

/// Asks the port mapper of `addr`'s host for the port that stands for `addr`'s. Sleeps until there
/// is an answer, for a second at most.
///
/// # Errors
/// The query cannot be sent.
pub fn ask(addr: SocketAddr) -> io::Result<MapperAnswer> {
    ask_at(addr, PORT)
}

/// Asks a port mapper at another UDP port, as [`ask`] does.
///
/// # Errors
/// The query cannot be sent.
pub fn ask_at(addr: SocketAddr, mapper: u16) -> io::Result<MapperAnswer> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    Ok(Query::to(&socket, addr, mapper, &PATIENT_TRIES)?.finish())
}

/// A query that is under way. Its user calls [`advance`](Self::advance), which does not sleep,
/// when its descriptor is readable and when it is [`due`](Self::due).
#[derive(Debug)]
pub(super) struct Query {
    udp: UdpSocket,
    question: port_mapper::Query,
    /// The moment from which the question's times count.
    begun: Instant,
    /// The next look at TCP, and whether it was connected at the last.
    look: Duration,
    was_connected: bool,
}

impl Query {
    /// Asks the port mapper of `addr`'s host for the port that stands for `addr`'s. Binds `socket`,
    /// unless it is bound, to the address and port that the query names. Returns `None` where the
    /// query cannot be sent.
    pub(super) fn begin(socket: &Socket, addr: SocketAddr) -> Option<Self> {
        let begun = Self::to(socket, addr, PORT, &TRIES);
        begun.inspect_err(|error| tell_none(addr, error)).ok()
    }

    fn to(socket: &Socket, addr: SocketAddr, port: u16, tries: &'static [Duration]) -> io::Result<Self> {
        let any: IpAddr =
            if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let udp = UdpSocket::bind((any, 0))?;
        udp.connect(with_port(addr, port))?;
        udp.set_nonblocking(true)?;
        // The program may have bound it.
        if socket.local_addr()?.as_socket().is_none_or(|local| local.port() == 0) {
            socket.bind(&SockAddr::from(with_port(udp.local_addr()?, 0)))?;
        }
        let cp = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut handle = [0; 8];
        getrandom::fill(&mut handle).map_err(io::Error::other)?;
        let question = port_mapper::Query::new(addr, cp, u64::from_be_bytes(handle), tries);
        let now = Instant::now();
        let mut query = Query { udp, question, begun: now, look: FIRST_LOOK, was_connected: false };
        query.send(now)?;
        Ok(query)
    }

    /// Returns the time at which [`advance`](Self::advance) is to be called even without an answer.
    pub(super) fn due(&self) -> Instant {
        self.begun + self.question.due().min(self.look)
    }

    /// Reads the answer. Returns the address to connect to: the one that was given, to which
    /// `socket` connects already, if the mapper does not answer or does not know it. `None` while
    /// the query goes on.
    pub(super) fn advance(&mut self, socket: &Socket, now: Instant) -> Option<SocketAddr> {
        let addr = self.question.service();
        match self.step(now) {
            Ok(None) if !self.is_overtaken(socket, now) => return None,
            Ok(None) => tracing::debug!(%addr, "TCP is connected before a port mapper has answered"),
            Ok(Some(MapperAnswer::Mapped(port))) => {
                tracing::debug!(%addr, port, "the port mapper has named a port");
                return Some(with_port(addr, port));
            }
            Ok(Some(_)) => tracing::debug!(%addr, "the port mapper does not know this port"),
            Err(error) => tell_none(addr, &error),
        }
        Some(addr)
    }

    /// Returns whether TCP was connected at the look before this one. A mapper has had twice the
    /// time of TCP's own answer by now.
    fn is_overtaken(&mut self, socket: &Socket, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.begun);
        if elapsed < self.look {
            return false;
        }
        self.look = elapsed * 2;
        std::mem::replace(&mut self.was_connected, socket.peer_addr().is_ok())
    }

    /// Sleeps until the query is over.
    fn finish(mut self) -> MapperAnswer {
        loop {
            match self.step(Instant::now()) {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(_) => return MapperAnswer::None,
            }
            let due = self.begun + self.question.due();
            let left = due.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(self.udp.as_fd(), PollFlags::POLLIN)];
            // After a signal, or an error, the socket is looked at again.
            let _ = poll(&mut fds, epoll_timeout(Some(left)));
        }
    }

    /// Returns what the mapper has answered; `None` while the query goes on.
    ///
    /// # Errors
    /// No answer has come to the last try, or the host has no mapper.
    fn step(&mut self, now: Instant) -> io::Result<Option<MapperAnswer>> {
        loop {
            match self.receive() {
                Ok(Some(answer)) => return self.take(&answer).map(Some),
                Ok(None) if now < self.begun + self.question.due() => return Ok(None),
                Ok(None) => self.send(now)?,
                // The host has said by ICMP that it has no mapper. It says so only now and then.
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the next try.
    fn send(&mut self, now: Instant) -> io::Result<()> {
        let request = self.question.next_try(now.saturating_duration_since(self.begun));
        self.udp.send(&request.ok_or(io::ErrorKind::TimedOut)?)?;
        Ok(())
    }

    /// Returns the answer to the question, if it has come. Other messages are ignored.
    fn receive(&self) -> io::Result<Option<Answer>> {
        let mut octets = [0; Frame::EXTENDED_LEN];
        for _ in 0..BATCH {
            let len = match self.udp.recv(&mut octets) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                received => received?,
            };
            if let Some(answer) = self.question.receive(&octets[..len]) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Acknowledges an answer that names a port.
    fn take(&self, answer: &Answer) -> io::Result<MapperAnswer> {
        let Answer::Mapped { port, acknowledge } = answer else { return Ok(MapperAnswer::Unknown) };
        self.udp.send(acknowledge)?;
        Ok(MapperAnswer::Mapped(*port))
    }
}

impl AsFd for Query {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Returns the address with another port. The scope of a link-local IPv6 address stays.
fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

fn tell_none(addr: SocketAddr, error: &io::Error) {
    tracing::debug!(%addr, %error, "no answer of a port mapper: connecting to the port as given");
}

#[cfg(test)]
mod tests {
    use rddp_iwarp::port_mapper::Kind;

    use super::*;

    /// RFC 4007 §6: a link-local address means something in its zone only.
    #[test]
    fn an_address_with_another_port_keeps_its_scope() {
        let addr = with_port("[fe80::1%3]:7174".parse().unwrap(), 49152);
        assert_eq!(addr, "[fe80::1%3]:49152".parse().unwrap());
    }

    const SHORT: Duration = Duration::from_millis(10);
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Asks a mapper for port 7174. The mapper sends `answers` to each message, given the number of
    /// messages before it. Returns the outcome, and the messages that came to the mapper.
    fn asked(
        tries: &'static [Duration],
        answers: impl Fn(usize, Frame) -> Vec<Frame>,
    ) -> (MapperAnswer, Vec<Frame>) {
        let mapper = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = mapper.local_addr().unwrap().port();
        let service: SocketAddr = "127.0.0.1:7174".parse().unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let (mut heard, mut octets) = (Vec::new(), [0; 64]);
        let outcome = std::thread::scope(|scope| {
            let asking = scope.spawn(|| Query::to(&socket, service, port, tries).unwrap().finish());
            mapper.set_read_timeout(Some(SHORT)).unwrap();
            loop {
                // If the asking thread is over, all that it sent has come.
                let over = asking.is_finished();
                while let Ok((len, from)) = mapper.recv_from(&mut octets) {
                    let message = Frame::parse(&octets[..len]).unwrap();
                    for answer in answers(heard.len(), message) {
                        mapper.send_to(&answer.octets(), from).unwrap();
                    }
                    heard.push(message);
                }
                if over {
                    break asking.join().unwrap();
                }
            }
        });
        let cp = socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!((heard[0].kind, heard[0].ap, heard[0].cp), (Kind::Request, service, cp));
        (outcome, heard)
    }

    fn accepted(message: Frame) -> Frame {
        Frame { kind: Kind::Accept, ap: "127.0.0.1:49152".parse().unwrap(), ..message }
    }

    #[test]
    fn the_port_that_a_mapper_names_is_acknowledged_and_taken() {
        let (outcome, heard) = asked(&[PATIENCE], |so_far, message| match so_far {
            0 => vec![accepted(message)],
            _ => vec![],
        });
        assert_eq!(outcome, MapperAnswer::Mapped(49152));
        assert_eq!(heard, [heard[0], Frame { kind: Kind::Acknowledge, ..accepted(heard[0]) }]);
    }

    #[test]
    fn a_query_that_is_lost_is_sent_again_and_answers_to_others_are_passed_over() {
        let (outcome, heard) = asked(&[SHORT, PATIENCE], |so_far, message| match so_far {
            1 => vec![Frame { handle: message.handle ^ 1, kind: Kind::Reject, ..message }, accepted(message)],
            _ => vec![],
        });
        assert_eq!(outcome, MapperAnswer::Mapped(49152));
        assert_eq!(heard, [heard[0], heard[0], Frame { kind: Kind::Acknowledge, ..accepted(heard[0]) }]);
    }

    #[test]
    fn a_refusal_ends_the_query_and_so_does_silence() {
        // A mapper that does not know a port says so, or names port 0.
        for (kind, port) in [(Kind::Reject, 7174), (Kind::Accept, 0)] {
            let ap = SocketAddr::from(([127, 0, 0, 1], port));
            let (outcome, heard) = asked(&[PATIENCE], |_, message| vec![Frame { kind, ap, ..message }]);
            assert_eq!((outcome, heard.len()), (MapperAnswer::Unknown, 1));
        }
        let (outcome, heard) = asked(&[SHORT, SHORT], |_, _| vec![]);
        assert_eq!((outcome, heard.len()), (MapperAnswer::None, 2));
    }

    #[test]
    fn a_host_without_a_mapper_has_no_answer() {
        // Nobody else may have this port, and for others than itself it is no port of anybody's.
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let nobody = taken.local_addr().unwrap();
        taken.connect(nobody).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let query = Query::to(&socket, nobody, nobody.port(), &PATIENT_TRIES).unwrap();
        assert_eq!(query.finish(), MapperAnswer::None);
    }

    /// A query to a mapper that says nothing by itself, and a TCP socket that connects to
    /// `service`.
    fn silent(service: SocketAddr) -> (UdpSocket, Query, Socket) {
        let mapper = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let port = mapper.local_addr().unwrap().port();
        let query = Query::to(&socket, service, port, &[PATIENCE]).unwrap();
        // Some are connected by then, some refused.
        let _ = socket.connect(&SockAddr::from(service));
        (mapper, query, socket)
    }

    #[test]
    fn tcp_waits_for_a_mapper_as_long_again_as_it_took_itself() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let service = listener.local_addr().unwrap();
        let (_mapper, mut query, socket) = silent(service);
        let begun = query.begun;
        assert_eq!(query.due(), begun + FIRST_LOOK);
        assert_eq!(query.advance(&socket, begun), None);
        assert_eq!(query.advance(&socket, begun + FIRST_LOOK), None);
        assert_eq!(query.due(), begun + FIRST_LOOK * 2);
        assert_eq!(query.advance(&socket, begun + FIRST_LOOK * 2 - Duration::from_nanos(1)), None);
        assert_eq!(query.advance(&socket, begun + FIRST_LOOK * 2), Some(service));
    }

    #[test]
    fn without_a_connection_the_mapper_has_all_its_time() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (_mapper, mut query, socket) = silent(free);
        for looks in 0..10 {
            assert_eq!(query.advance(&socket, query.begun + FIRST_LOOK * (1 << looks)), None);
        }
        assert_eq!(query.due(), query.begun + FIRST_LOOK * 1024);
        assert_eq!(query.advance(&socket, query.begun + PATIENCE), Some(free));
    }

    #[test]
    fn an_answer_counts_more_than_a_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (mapper, mut query, socket) = silent(listener.local_addr().unwrap());
        let mut octets = [0; 64];
        let (len, from) = mapper.recv_from(&mut octets).unwrap();
        query.was_connected = true;
        mapper.send_to(&accepted(Frame::parse(&octets[..len]).unwrap()).octets(), from).unwrap();
        let answer = query.advance(&socket, query.begun + PATIENCE / 2);
        assert_eq!(answer, Some("127.0.0.1:49152".parse().unwrap()));
    }
}

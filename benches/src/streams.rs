//! Two byte streams over one TCP connection.

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use rddp_ddp::UntaggedRepr;
use rddp_mpa::{LENGTH_LEN, fpdu_len};
use rddp_stream::sdp::Messages;
use rddp_stream::{Calls, Format, Framed, Kind, Octets, Options, Role, SdpOptions, SharedState};

use crate::Wire;
use crate::end::tcp_pair;

static CALLS: Calls = Calls::libc();

/// One end of a framed connection.
#[derive(Debug)]
struct End {
    tcp: TcpStream,
    state: SharedState,
}

impl End {
    fn stream<K: Kind>(&self) -> Framed<'_, K> {
        Framed::new(self.tcp.as_raw_fd(), &self.state, &CALLS).expect("a state of this kind")
    }
}

/// A byte stream whose startup is over, and the one that is its peer in the same thread: no octet
/// moves but by what the bench calls.
#[derive(Debug)]
pub struct Streams<K = Octets> {
    ours: End,
    peer: End,
    /// Octets in front of the program's in each FPDU.
    front: usize,
    kind: PhantomData<K>,
}

impl Streams {
    /// Two ends in DDPMODE that have sent an octet each.
    ///
    /// # Panics
    /// If loopback does not work.
    #[must_use]
    pub fn new(wire: Wire) -> Self {
        Self::of(wire, Format::Octets)
    }
}

impl Streams<Messages> {
    /// Two such ends that speak SDP, and advertise nothing.
    ///
    /// # Panics
    /// If loopback does not work.
    #[must_use]
    pub fn sdp(wire: Wire) -> Self {
        Self::of(wire, Format::Sdp(SdpOptions::DEFAULT))
    }
}

impl<K: Kind> Streams<K> {
    fn of(wire: Wire, format: Format) -> Self {
        let (ours, peer) = tcp_pair(wire.mss).expect("a TCP connection over loopback");
        let end = |tcp, role| {
            let options = Options { crc: wire.crc, format, ..Options::new(role) };
            End { tcp, state: SharedState::anonymous(&options).expect("memory for a state") }
        };
        let front = if format == Format::Octets { 0 } else { BASE_HEADER };
        let (ours, peer) = (end(ours, Role::Responder), end(peer, Role::Initiator));
        let streams = Self { ours, peer, front, kind: PhantomData };
        assert_eq!(streams.peer.stream::<K>().greet(), Ok(false), "the Request is on its way");
        assert_eq!(streams.ours.stream::<K>().greet(), Ok(true), "the Reply is on its way");
        streams.incoming(b"!");
        streams.receive(&mut [0; 1]);
        streams.send(b"!");
        streams.peer_reads(1);
        streams
    }

    /// The stream sends `octets` in one call.
    pub fn send(&self, octets: &[u8]) {
        let sent = self.ours.stream::<K>().send(&[IoSlice::new(octets)], 0);
        assert_eq!(sent, Ok(octets.len()));
    }

    /// The stream receives `octets` in one call.
    pub fn receive(&self, octets: &mut [u8]) {
        let room = octets.len();
        let received = self.ours.stream::<K>().recv(&mut [IoSliceMut::new(octets)], 0);
        assert_eq!(received, Ok(room));
    }

    /// The peer sends `octets`. They have come when this returns, and nobody has read them.
    ///
    /// # Panics
    /// If TCP does not take all of them at once.
    pub fn incoming(&self, octets: &[u8]) {
        let sent = self.peer.stream::<K>().send(&[IoSlice::new(octets)], 0);
        assert_eq!(sent, Ok(octets.len()));
        // Without reading them, so that whoever is measured finds all of them.
        let mut seen = vec![0; 2 * octets.len() + 1024];
        let is_short = |there: &[u8]| payload_of(there, self.front) < octets.len();
        while self.ours.tcp.peek(&mut seen).is_ok_and(|there| is_short(&seen[..there])) {
            std::thread::yield_now();
        }
    }

    /// The peer reads the `count` octets that the stream has sent.
    pub fn peer_reads(&self, count: usize) {
        let mut left = vec![0; count];
        while !left.is_empty() {
            let received = self.peer.stream::<K>().recv(&mut [IoSliceMut::new(&mut left)], 0);
            left.drain(..received.expect("the other end is open"));
        }
    }
}

/// Returns the program's octets in the whole FPDUs at the front of `stream`, which are unmarked
/// Sends with `front` octets before them.
fn payload_of(mut stream: &[u8], front: usize) -> usize {
    let mut payload = 0;
    while let Some(length) = stream.first_chunk::<LENGTH_LEN>() {
        let ulpdu_len = usize::from(u16::from_be_bytes(*length));
        let Some(behind) = stream.get(fpdu_len(ulpdu_len)..) else { break };
        payload += ulpdu_len - UntaggedRepr::LEN - front;
        stream = behind;
    }
    payload
}

/// Base header of a message of SDP.
const BASE_HEADER: usize = 16;

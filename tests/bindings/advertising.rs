//! Adverts between the bindings: an end over its own socket, and one over the software RNIC, which
//! advertises and reads as soon as it may.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use rddp_sdp::socket::Config;
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_stream::sdp::Stream;
use rddp_stream::{Calls, Format, Options, Role, SdpOptions, SharedState};
use rddp_test_support::{pattern, pattern_from};

static CALLS: Calls = Calls::libc();

/// An end over its own socket.
struct InCall {
    tcp: TcpStream,
    state: SharedState,
}

impl InCall {
    fn new(tcp: TcpStream, role: Role) -> Self {
        let format = Format::Sdp(SdpOptions::DEFAULT);
        let state = SharedState::anonymous(&Options { format, ..Options::new(role) }).unwrap();
        Self { tcp, state }
    }

    fn stream(&self) -> Stream<'_> {
        Stream::new(self.tcp.as_raw_fd(), &self.state, &CALLS).unwrap()
    }

    fn send(&self, octets: &[u8]) {
        assert_eq!(self.stream().send(&[IoSlice::new(octets)], 0), Ok(octets.len()));
    }

    fn recv(&self, octets: &mut [u8], flags: i32) -> usize {
        self.stream().recv(&mut [IoSliceMut::new(octets)], flags).unwrap()
    }
}

fn device(threshold: Option<usize>, pipelined: bool) -> SdpDevice {
    let config = Config {
        source_threshold: threshold,
        sink_threshold: threshold,
        sink_adverts: pipelined,
        pipelined,
        ..Config::default()
    };
    SdpDevice::open(config, Scheme::PerCall).unwrap()
}

/// Returns an end of each binding, connected by this one.
fn pair(device: &SdpDevice, by: Role) -> (InCall, SdpStream) {
    if by == Role::Initiator {
        let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        return thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let end = InCall::new(TcpStream::connect(addr).unwrap(), Role::Initiator);
            end.stream().start(None).unwrap();
            (end, accepting.join().unwrap())
        });
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| device.connect(addr).unwrap());
        let end = InCall::new(listener.accept().unwrap().0, Role::Responder);
        end.stream().start(None).unwrap();
        (end, connecting.join().unwrap())
    })
}

const POLICIES: [(Option<usize>, bool); 4] =
    [(None, false), (Some(0), false), (Some(0), true), (Some(4096), true)];

#[test]
fn octets_from_a_device_arrive_at_the_programs_socket() {
    for (threshold, pipelined) in POLICIES {
        for by in [Role::Initiator, Role::Responder] {
            let device = device(threshold, pipelined);
            let (end, mut other) = pair(&device, by);
            for len in [64, 1000, 70_000, 1 << 20, 4 << 20] {
                for room in [len, 10_000] {
                    let octets = pattern(len, len as u8);
                    thread::scope(|scope| {
                        scope.spawn(|| other.write_all(&octets).unwrap());
                        let (mut got, mut part) = (Vec::new(), vec![0; room]);
                        while got.len() < len {
                            let most = room.min(len - got.len());
                            let count = end.recv(&mut part[..most], 0);
                            assert!(count > 0, "the end");
                            got.extend_from_slice(&part[..count]);
                        }
                        assert!(got == octets, "{len} octets by {room}, {threshold:?}, {pipelined}, {by:?}");
                    });
                }
            }
            assert_eq!(end.state.ended(), None);
        }
    }
}

#[test]
fn octets_for_a_device_leave_the_programs_socket() {
    for (threshold, pipelined) in POLICIES {
        for by in [Role::Initiator, Role::Responder] {
            let device = device(threshold, pipelined);
            let (end, mut other) = pair(&device, by);
            for len in [64, 1000, 70_000, 1 << 20] {
                let octets = pattern(len, 3);
                thread::scope(|scope| {
                    scope.spawn(|| end.send(&octets));
                    let mut got = vec![0; len];
                    other.read_exact(&mut got).unwrap();
                    assert!(got == octets, "{len} octets, {threshold:?}, {pipelined}, {by:?}");
                });
            }
            assert_eq!(end.state.ended(), None);
        }
    }
}

#[test]
fn a_call_and_its_answer_cross_many_times() {
    let device = device(Some(0), true);
    let (end, mut other) = pair(&device, Role::Responder);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50 {
                let len = 1 + round * 7919 % 60_000;
                other.write_all(&pattern_from(round, len)).unwrap();
                let mut got = vec![0; len];
                other.read_exact(&mut got).unwrap();
                assert!(got == pattern_from(round + 1, len), "round {round}");
            }
        });
        for round in 0..50 {
            let len = 1 + round * 7919 % 60_000;
            let mut got = vec![0; len];
            assert_eq!(end.recv(&mut got, libc_waitall()), len);
            assert!(got == pattern_from(round, len), "round {round}");
            end.send(&pattern_from(round + 1, len));
        }
    });
}

/// `MSG_WAITALL`.
fn libc_waitall() -> i32 {
    0x100
}

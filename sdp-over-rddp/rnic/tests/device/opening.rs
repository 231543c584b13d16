//! Hello and `HelloAck` as devices carry them, and peers that are none.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use rddp_rnic::Access;
use rddp_sdp::socket::{Agreed, Config, answer, hello};
use rddp_sdp::transport::Carrier;
use rddp_sdp::wire::Hello;
use rddp_verbs_device::{ConnectFailed, Endpoint, Event, Listener, Offer, Queues};

use crate::support::{Host, KINDS, Kind, host, quirk};

const QUEUES: Queues = Queues { sends: 8, receives: 8, inline: 0 };

/// Waits for the request of a peer, and returns its private data, too.
fn asked(listener: &Listener) -> (Endpoint, Vec<u8>) {
    let request = std::iter::repeat_with(|| listener.take().unwrap()).flatten().next().unwrap();
    let hello = request.asked().private_data.clone();
    (request.endpoint(listener.device(), QUEUES).unwrap(), hello)
}

/// Answers the request of a peer, and returns what the peer's call does then.
fn answered(host: &Host, reply: impl FnOnce(&[u8], &Listener) -> Vec<u8>) -> Result<(), ErrorKind> {
    let listener = Listener::open(&host.device, host.address(1, 0), 8).unwrap();
    let addr = listener.address();
    let sockets = host.sockets(Config::default());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| sockets.connect(addr).map(drop).map_err(|error| error.kind()));
        let (mut peer, hello) = asked(&listener);
        let private_data = reply(&hello, &listener);
        peer.accept(Offer { private_data, inbound: Access::REMOTE, ..Offer::default() }).unwrap();
        connecting.join().unwrap()
    })
}

/// RoCE and InfiniBand have room for 56 octets, and fill them up with zeros.
#[test]
fn hello_is_compact_where_there_is_no_room_for_it() {
    for kind in KINDS {
        let host = host("hello", kind, 0);
        let carrier = if kind == Kind::Siw { Carrier::EnhancedMpa } else { Carrier::IpCm };
        let outcome = answered(&host, |hello, listener| {
            let [here, there] = [listener.address(), host.address(1, 0)];
            if kind == Kind::Siw {
                assert_eq!(hello.len(), Hello::LEN);
            } else {
                assert_eq!((hello.len(), &hello[Hello::COMPACT_LEN..]), (56, &[0; 22][..]));
            }
            let (agreed, reply): (Agreed, _) =
                answer(&Config::default(), hello, here, there, carrier).unwrap();
            assert_eq!(agreed.peer_bufs, Config::default().buffers);
            reply
        });
        assert_eq!(outcome, Ok(()), "{kind:?}");
    }
}

#[test]
fn a_peer_that_does_not_speak_sdp_is_refused() {
    for kind in KINDS {
        let host = host("stranger", kind, 0);
        assert_eq!(answered(&host, |_, _| b"hello".to_vec()), Err(ErrorKind::ConnectionRefused), "{kind:?}");
    }
}

#[test]
fn nobody_listening_is_a_refusal() {
    for kind in KINDS {
        let host = host("nobody", kind, 0);
        let refused = host.sockets(Config::default()).connect(host.address(1, 7)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{kind:?}: {refused}");
    }
}

/// The connecting of siw goes on in its own thread, whatever this end has given up.
#[test]
fn a_silent_host_is_a_time_out() {
    for kind in KINDS {
        let host = host("silent", kind, 0);
        let mut sockets = host.sockets(Config::default());
        sockets.options.timeout = Duration::from_millis(50);
        let late = sockets.connect(host.address(200, 7)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut, "{kind:?}: {late}");
        host.end_silence();
    }
}

#[test]
fn a_request_without_a_hello_is_rejected_and_the_next_one_is_not() {
    for kind in KINDS {
        let host = host("no_hello", kind, 0);
        let sockets = host.sockets(Config::default());
        let listener = sockets.listen(host.address(1, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut stranger = Endpoint::open(&host.device, None, addr, QUEUES, Duration::from_secs(20)).unwrap();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let mut next = || std::iter::repeat_with(|| stranger.event().unwrap()).flatten().next().unwrap();
            assert!(matches!(next(), Event::Resolved));
            stranger.connect(Offer::default()).unwrap();
            let rejected = std::iter::repeat_with(|| stranger.event().unwrap()).flatten().next().unwrap();
            assert!(matches!(rejected, Event::Failed(ConnectFailed::Rejected { .. })), "{rejected:?}");
            sockets.connect(addr).unwrap().write_all(b"next").unwrap();
            let mut got = Vec::new();
            accepting.join().unwrap().read_to_end(&mut got).unwrap();
            assert_eq!(got, b"next");
        });
    }
}

/// Asks for a connection of SDP, and says nothing on it. Returns the outcome, too.
fn ask(host: &Host, addr: SocketAddr) -> (Endpoint, Event) {
    let mut peer = Endpoint::open(&host.device, None, addr, QUEUES, Duration::from_secs(20)).unwrap();
    let next = |peer: &mut Endpoint| std::iter::repeat_with(|| peer.event().unwrap()).flatten().next();
    assert!(matches!(next(&mut peer), Some(Event::Resolved)));
    let private_data = hello(&Config::default(), addr, addr, Carrier::IpCm).unwrap();
    peer.connect(Offer { private_data, ..Offer::default() }).unwrap();
    let outcome = next(&mut peer).unwrap();
    (peer, outcome)
}

/// Peers of one address have half of the places at most.
#[test]
fn silent_peers_of_one_address_leave_places_to_others() {
    let host = host("crowd", Kind::Rxe, 0);
    let sockets = host.sockets(Config { buffers: 4, buffer_size: 4096, ..Config::default() });
    let listener = sockets.listen(host.address(1, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().map(drop).unwrap_err().kind());
        let silent: Vec<_> = (0..65).map(|_| ask(&host, addr)).collect();
        // The fake connects from the address that it connects to.
        let other = ask(&host, host.address(2, addr.port()));
        listener.stop();
        assert_eq!(accepting.join().unwrap(), ErrorKind::Interrupted);
        let is_taken = |(_, outcome): &(Endpoint, Event)| matches!(outcome, Event::Connected(_));
        assert_eq!(silent.iter().position(|peer| !is_taken(peer)), Some(64));
        assert!(is_taken(&other), "a peer of another address");
    });
}

/// The server goes on: others may need less, or come when there is more. Its program may hear why.
#[test]
fn a_peer_for_which_there_is_no_memory_is_rejected() {
    let host = host("no_memory", Kind::Rxe, quirk::LOCKED_MEMORY);
    let sockets = host.sockets(Config::default());
    let listener = sockets.listen(host.address(1, 0)).unwrap();
    static WHY: Mutex<String> = Mutex::new(String::new());
    listener.tell_rejected(|_, reason| *WHY.lock().unwrap() = reason.to_string());
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().map(drop).unwrap_err().kind());
        let (_, outcome) = ask(&host, addr);
        listener.stop();
        assert_eq!(accepting.join().unwrap(), ErrorKind::Interrupted);
        assert!(matches!(outcome, Event::Failed(ConnectFailed::Rejected { .. })), "{outcome:?}");
        assert!(WHY.lock().unwrap().contains("ulimit -l"), "{}", WHY.lock().unwrap());
    });
}

/// Private buffers are registered, too.
#[test]
fn too_little_locked_memory_is_named() {
    let host = host("memlock", Kind::Siw, quirk::LOCKED_MEMORY);
    let refused = host.sockets(Config::default()).connect(host.address(1, 7)).unwrap_err();
    assert!(refused.to_string().contains("ulimit -l"), "{refused}");
}

//! From a name to a device, and from an address to a connection.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, ConnectError, ConnectOptions, Error, Keepalive, NamedBy, NoReceive, QpConfig, QpState, RecvWr,
    Rnic, RnicConfig, SendWr, SrqConfig, Transport,
};
use rddp_verbs_device::{ConnectFailed, DeviceError, Event, Listener, Offer};

use crate::support::{Host, Kind, PATIENCE, event, host, quirk};

const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

#[test]
fn a_device_that_is_not_there_is_refused_with_what_helps() {
    let config = RnicConfig { device: Some("siw77".to_owned()), ..RnicConfig::default() };
    let refused = Rnic::with_config(&config).unwrap_err();
    let Error::NamedDevice { error: DeviceError::Library(_) | DeviceError::NoDevice { .. }, by } = &refused
    else {
        panic!("{refused}")
    };
    assert_eq!(*by, NamedBy::Program);
    let said = refused.to_string();
    assert!(said.contains("install") || said.contains("siw77"), "{said}");
    assert!(said.contains("RnicConfig::device") && said.contains("soft"), "{said}");
}

/// The variable may come from a file of the shell's, unknown to who runs the program.
#[test]
fn a_device_that_the_variable_names_in_vain_is_told_with_the_variable() {
    let itself = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(itself);
    child.env("RDDP_DEVICE", "siw77").args(["--exact", "--ignored", "--nocapture", "opening::opens"]);
    let said = child.output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("RDDP_DEVICE asks for it") && said.contains("soft"), "{said}");
}

#[test]
#[ignore = "a process of the test above"]
fn opens() {
    if let Err(error) = Rnic::open() {
        println!("{error}");
    }
}

#[test]
fn software_is_a_device_by_name() {
    let config = RnicConfig { device: Some(RnicConfig::SOFTWARE.to_owned()), ..RnicConfig::default() };
    assert_eq!(Rnic::with_config(&config).unwrap().capabilities(), Rnic::CAPABILITIES);
}

#[test]
fn what_only_software_has_is_refused_by_name() {
    let host = host("soft_only", Kind::Siw, 0);
    let end = host.end();
    let of = |settings: &dyn Fn(&mut QpConfig)| {
        let mut config = QpConfig::new(&end.cq);
        settings(&mut config);
        end.pd.create_qp(&config).unwrap_err()
    };
    let srq = end.pd.create_srq(SrqConfig { quota: Some(1), ..SrqConfig::default() });
    let markers = ConnectOptions { markers: true, ..ConnectOptions::default() };
    let keepalive = Some(Keepalive { idle: Duration::ZERO, ..Keepalive::default() });
    let restless = ConnectOptions { keepalive, ..ConnectOptions::default() };
    for refused in [
        of(&|config| config.transport = Transport::Tcp),
        of(&|config| config.transport = Transport::Acknowledged),
        of(&|config| config.srq = Some(srq.clone())),
        of(&|config| (config.no_receive, config.inbound_read) = (NoReceive::Wait, false)),
        host.rnic.listen_by(Transport::Tcp, host.address(1, 0), &ConnectOptions::default()).unwrap_err(),
        host.rnic.listen_on(tcp_listener(), 1, &ConnectOptions::default()).unwrap_err(),
        host.rnic.listen(host.address(1, 0), &markers).unwrap_err(),
        host.rnic.listen(host.address(1, 0), &restless).unwrap_err(),
        end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_INVALIDATE).unwrap_err(),
        end.pd.register_file(tempfile(), 0..1, Access::REMOTE_READ).unwrap_err(),
    ] {
        let is_named = matches!(&refused, Error::Device(DeviceError::Unsupported { device, .. }) if device == "soft_only");
        assert!(is_named, "{refused}");
    }
    let listener = tcp_listener();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for refused in [
        end.qp.begin(socket, &ConnectOptions::default(), true).unwrap_err(),
        end.qp.begin_to(host.address(1, 1), &markers).unwrap_err(),
        end.qp.begin_to(host.address(1, 1), &restless).unwrap_err(),
    ] {
        assert!(matches!(refused, ConnectError::Device(DeviceError::Unsupported { .. })), "{refused}");
    }
    assert_eq!(end.qp.state(), QpState::Idle);
}

fn tcp_listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn tempfile() -> std::fs::File {
    std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap()
}

#[test]
fn both_ends_learn_what_the_other_says() {
    for kind in KINDS {
        let host = host(&format!("terms{}", kind as u8), kind, 0);
        let end = host.end();
        let options =
            ConnectOptions { private_data: b"question".to_vec(), ord: 3, ..ConnectOptions::default() };
        let offer = Offer { private_data: b"answer".to_vec(), ..Offer::default() };
        let (connected, _peer) = host.connect_with(&end, &options, offer);
        assert!(connected.negotiated.is_none() && connected.private_data.starts_with(b"answer"));
        assert_eq!((connected.ird, connected.ord), (16, 3), "{kind:?}");
        assert_eq!(end.qp.peer_addr().unwrap().ip(), host.address(1, 0).ip());
    }
}

#[test]
fn the_peer_is_told_what_the_program_says() {
    let host = host("says", Kind::Siw, 0);
    let (end, listener) = (host.end(), host.listen());
    let options = ConnectOptions { private_data: b"question".to_vec(), ..ConnectOptions::default() };
    end.qp.begin_to(listener.address(), &options).unwrap();
    let mut asked = std::iter::repeat_with(|| listener.take().unwrap()).flatten();
    assert_eq!(asked.next().unwrap().asked().private_data, b"question");
}

#[test]
fn a_connection_begins_at_the_address_that_the_program_says() {
    for kind in KINDS {
        let host = host(&format!("source{}", kind as u8), kind, 0);
        let (end, listener) = (host.end(), host.listen());
        let source = Some(host.address(7, 0));
        let options = ConnectOptions { source, ..ConnectOptions::default() };
        end.qp.begin_to(listener.address(), &options).unwrap();
        let mut asked = std::iter::repeat_with(|| listener.take().unwrap()).flatten();
        let peer = asked.next().unwrap().asked().peer;
        assert_eq!(peer.unwrap().ip(), host.address(7, 0).ip(), "{kind:?}");
    }
}

/// RNICs end a connection by a message that finds none, and the peer may send as soon as it agrees.
#[test]
fn receives_are_the_devices_before_there_is_a_connection() {
    for kind in KINDS {
        let host = host(&format!("receives{}", kind as u8), kind, 0);
        let (end, listener) = (host.end(), host.listen());
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        end.qp.begin_to(listener.address(), &ConnectOptions::default()).unwrap();
        let _peer = host.asked(&listener);
        assert_eq!(host.receives(), 1, "{kind:?}");
    }
}

/// One that is posted while the connection comes about, at whatever moment, the device gets, too.
#[test]
fn a_receive_that_is_posted_meanwhile_is_the_devices_soon() {
    let host = host("meanwhile", Kind::Rxe, 0);
    for moment in 0..300 {
        let (end, listener) = (host.end(), host.listen());
        end.qp.begin_to(listener.address(), &ConnectOptions::default()).unwrap();
        let mut peer = host.asked(&listener);
        peer.accept(Offer::default()).unwrap();
        let since = Instant::now();
        while since.elapsed() < Duration::from_nanos(500 * moment) {}
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        end.begun().unwrap();
        host.until(|| end.cq.poll_one().is_none() && host.receives() == 1);
        drop((end, peer, listener));
        host.until_nothing_is_left();
    }
}

#[test]
fn nobody_listens_there() {
    for kind in KINDS {
        let host = host(&format!("nobody{}", kind as u8), kind, 0);
        let end = host.end();
        let refused = end.qp.connect(host.address(1, 9), &ConnectOptions::default()).unwrap_err();
        assert!(matches!(refused, ConnectError::Unreached(ConnectFailed::Refused { .. })), "{refused}");
        assert_eq!(end.qp.state(), QpState::Idle, "it may try again");
        host.pair_of(&end);
    }
}

#[test]
fn a_refusal_is_not_the_last_word_where_the_program_waits_for_a_listener() {
    for kind in KINDS {
        let host = host(&format!("waits{}", kind as u8), kind, 0);
        let (end, address) = (host.end(), host.address(1, 9));
        let options = ConnectOptions { retry_refused: PATIENCE, ..ConnectOptions::default() };
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        end.qp.begin_to(address, &options).unwrap();
        assert!(!end.qp.await_begun(Duration::from_millis(50)), "{:?}", end.qp.begun());
        let listener = Listener::open(&host.device, address, 8).unwrap();
        let mut peer = host.asked(&listener);
        peer.accept(Offer::default()).unwrap();
        end.begun().unwrap();
        assert!(matches!(event(&mut peer), Event::Connected(_)));
        peer.post_send(&SendWr::send(2, Vec::new())).unwrap();
        assert_eq!(end.next().wr_id, 1);
    }
}

/// The connection manager chooses the port of an RNIC without asking the host's TCP.
#[test]
fn a_port_of_this_end_that_is_taken_is_not_the_programs_affair() {
    let host = host("taken", Kind::Siw, quirk::PORT_TAKEN);
    host.pair_of(&host.end());
}

#[test]
fn the_peer_rejects_and_says_why() {
    let host = host("rejects", Kind::Rxe, 0);
    let (end, listener) = (host.end(), host.listen());
    end.qp.begin_to(listener.address(), &ConnectOptions::default()).unwrap();
    host.asked(&listener).reject(b"no room").unwrap();
    let rejected = end.begun().unwrap_err();
    let is_told =
        matches!(&rejected, ConnectError::Rejected { private_data } if private_data.starts_with(b"no room"));
    assert!(is_told, "{rejected}");
}

/// siw waits two minutes in `rdma_connect` for a host that is silent, and rxe tells nothing of it.
#[test]
fn a_silent_peer_costs_no_more_than_the_callers_time() {
    let siw = host("silent_siw", Kind::Siw, 0);
    for host in [&siw, &host("silent_rxe", Kind::Rxe, 0)] {
        let end = host.end();
        let options = ConnectOptions { timeout: Duration::from_millis(100), ..ConnectOptions::default() };
        let error = end.qp.connect(host.address(200, 5), &options).unwrap_err();
        assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
        assert_eq!(end.qp.state(), QpState::Idle);
    }
    Host::end_silence();
    siw.until_nothing_is_left();
}

#[test]
fn a_startup_is_given_up() {
    let host = host("given_up", Kind::Rxe, 0);
    let end = host.end();
    end.qp.begin_to(host.address(200, 5), &ConnectOptions::default()).unwrap();
    end.qp.abort();
    assert!(matches!(end.begun(), Err(ConnectError::GivenUp)));
    drop(end);
    host.until_nothing_is_left();
}

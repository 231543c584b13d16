//! Connections that begin, and those that do not.

use rddp_rdma::{Access, Protocol, RecvWr, SendWr, Status};
use rddp_verbs_device::{
    ConnectFailed, Device, DeviceError, Endpoint, Event, Listener, Offer, Queues, Transport,
};

use crate::support::{
    Host, Kind, PATIENCE, QUEUES, asked, completion, completions, event, fake, host, hosts, quirk,
};

fn with(private_data: Vec<u8>) -> Offer {
    Offer { private_data, ..Offer::default() }
}

#[test]
fn devices_are_found_by_name_and_say_what_they_can() {
    let (siw, rxe) = (host("can_siw", Kind::Siw, 0), host("can_rxe", Kind::Rxe, 0));
    assert_eq!((siw.device.transport(), rxe.device.transport()), (Transport::Iwarp, Transport::InfiniBand));
    let (rnic, roce) = (siw.device.capabilities(), rxe.device.capabilities());
    assert_eq!((rnic.immediate_len, roce.immediate_len), (0, 4));
    assert_eq!((rnic.max_sge, rnic.max_request_data, rnic.max_message), (6, 251, u64::from(u32::MAX)));
    assert_eq!((roce.max_request_data, roce.max_reply_data, roce.max_reject_data), (56, 196, 148));
    assert!(rnic.read_sink.contains(Access::REMOTE_WRITE) && !roce.read_sink.contains(Access::REMOTE_WRITE));
    let adapter = host("can_adapter", Kind::Adapter, 0);
    let protocols = [&siw, &rxe, &adapter].map(|host| host.device.capabilities().protocol);
    assert_eq!(protocols, [Protocol::Iwarp, Protocol::Roce, Protocol::InfiniBand]);
    let none = Device::named_in(siw.device.library(), "can_nothing").unwrap_err();
    assert!(none.to_string().contains("can_siw"), "{none}");
}

#[test]
fn the_device_on_the_way_to_an_address_is_found() {
    let (siw, rxe) = (host("way_siw", Kind::Siw, 0), host("way_rxe", Kind::Rxe, 0));
    for host in [&siw, &rxe] {
        let found = Device::towards_in(host.device.library(), host.address(7, 80));
        assert_eq!(found.as_deref(), Some(host.device.name()));
    }
    assert_eq!(Device::towards_in(siw.device.library(), "192.0.2.1:80".parse().unwrap()), None);
    // The connection manager gives any device to an address of the loopback.
    assert_eq!(Device::towards(siw.address(7, 80)), None);
}

/// Parallel tests make devices, too, each of which a list is kept for.
#[test]
fn lists_of_devices_that_are_known_are_freed() {
    let host = host("lists", Kind::Rxe, 0);
    let before = (fake().lists)();
    for _ in 0..2000 {
        Device::named_in(host.device.library(), "lists").unwrap();
    }
    assert!((fake().lists)() - before < 1000);
}

#[test]
fn a_completion_queue_that_is_not_there_is_the_reason() {
    let host = host("no_queues", Kind::Rxe, quirk::NO_QUEUES);
    let failed = |queues| {
        let to = host.address(1, 1);
        let mut end = Endpoint::open(&host.device, None, to, queues, PATIENCE).unwrap();
        std::iter::repeat_with(|| end.event()).find_map(Result::err).unwrap()
    };
    let refused = failed(QUEUES);
    assert!(matches!(&refused, DeviceError::Call { call: "ibv_create_cq", .. }), "{refused}");
    let long = Queues { receives: host.device.capabilities().max_cqes, ..QUEUES };
    let refused = failed(long);
    assert!(matches!(&refused, DeviceError::Unsupported { .. }), "{refused}");
}

#[test]
fn a_signal_does_not_end_the_search_for_a_device() {
    let host = host("way_signal", Kind::Rxe, quirk::SIGNAL);
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing; no other test uses the signal.
    unsafe { libc::signal(libc::SIGUSR1, ignore as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let found = Device::towards_in(host.device.library(), host.address(7, 80));
    assert_eq!(found.as_deref(), Some("way_signal"));
}

#[test]
fn private_data_come_with_their_length_on_iwarp_and_with_zeros_on_infiniband() {
    for host in hosts("data", 0) {
        let (request, reply) = if host.kind.is_iwarp() { (2, 3) } else { (56, 196) };
        let listener = host.listen();
        let mut active = host.ask(listener.address(), with(vec![7; 2]));
        let (mut passive, said) = asked(&listener);
        assert_eq!((said.private_data.len(), &said.private_data[..2]), (request, &[7, 7][..]));
        passive.accept(with(vec![9; 3])).unwrap();
        let Event::Connected(agreed) = event(&mut active) else { panic!("no connection") };
        assert_eq!((agreed.private_data.len(), &agreed.private_data[..3]), (reply, &[9, 9, 9][..]));
    }
}

/// Returns how many octets of private data a device takes: in a Request, a Reply, a Reject.
fn most(kind: Kind) -> [usize; 3] {
    if kind.is_iwarp() { [251; 3] } else { [56, 196, 148] }
}

#[test]
fn longer_private_data_are_refused_before_a_device_sees_them() {
    for host in hosts("long", 0) {
        let most = most(host.kind);
        let listener = host.listen();
        let mut active = host.look_for(listener.address());
        assert!(matches!(event(&mut active), Event::Resolved));
        let refused = |outcome: Result<(), DeviceError>, most: usize| {
            let error = outcome.unwrap_err();
            assert!(matches!(error, DeviceError::PrivateData { max, .. } if max == most), "{error}");
        };
        refused(active.connect(with(vec![0; most[0] + 1])), most[0]);
        active.connect(with(vec![0; most[0]])).unwrap();
        let (mut passive, _) = asked(&listener);
        refused(passive.accept(with(vec![0; most[1] + 1])), most[1]);
        refused(passive.reject(&vec![0; most[2] + 1]), most[2]);
    }
}

#[test]
fn the_longest_private_data_arrive_whole() {
    for host in hosts("most", 0) {
        let octets = |len: usize| (1..=len).map(|octet| octet as u8).collect::<Vec<u8>>();
        let [request, reply, reject] = most(host.kind).map(octets);
        let listener = host.listen();
        for accepts in [true, false] {
            let mut active = host.ask(listener.address(), with(request.clone()));
            let (mut passive, said) = asked(&listener);
            assert_eq!(said.private_data, request);
            if accepts {
                passive.accept(with(reply.clone())).unwrap();
                let Event::Connected(agreed) = event(&mut active) else { panic!("no connection") };
                assert_eq!(agreed.private_data, reply);
            } else {
                passive.reject(&reject).unwrap();
                let Event::Failed(ConnectFailed::Rejected { private_data }) = event(&mut active) else {
                    panic!("not rejected")
                };
                assert_eq!(private_data, reject);
            }
        }
    }
}

#[test]
fn depths_are_the_smaller_ones_whoever_tells_them() {
    for host in hosts("depth", 0) {
        let listener = host.listen();
        let offer = |ird, ord| Offer { ird, ord, ..Offer::default() };
        let mut active = host.ask(listener.address(), offer(5, 3));
        let (mut passive, said) = asked(&listener);
        assert_eq!((said.ird, said.ord), (3, 5));
        passive.accept(offer(2, 4)).unwrap();
        assert_eq!(passive.depths(), (2, 4), "before the peer takes up the connection");
        let Event::Connected(agreed) = event(&mut active) else { panic!("no connection") };
        // siw answers as many Reads as the other end wants to ask for, whatever its program says.
        assert_eq!((agreed.ird, agreed.ord), (4, if host.kind == Kind::Siw { 3 } else { 2 }));
        let Event::Connected(agreed) = event(&mut passive) else { panic!("no connection") };
        assert_eq!((agreed.ird, agreed.ord), (2, 4));
    }
}

#[test]
fn a_port_where_nothing_listens_is_told_from_a_program_that_says_no() {
    for host in hosts("no", 0) {
        let len = if host.kind.is_iwarp() { 4 } else { 148 };
        let mut active = host.ask(host.own(9), Offer::default());
        let Event::Failed(why) = event(&mut active) else { panic!("a connection") };
        assert!(matches!(why, ConnectFailed::Refused { .. }), "{why}");
        let listener = host.listen();
        for says in [true, false] {
            let mut active = host.ask(listener.address(), Offer::default());
            let (passive, _) = asked(&listener);
            if says {
                passive.reject(b"busy").unwrap();
            } else {
                drop(passive);
            }
            let Event::Failed(ConnectFailed::Rejected { private_data }) = event(&mut active) else {
                panic!("not rejected")
            };
            assert!(!says || (private_data.len() == len && private_data.starts_with(b"busy")));
        }
    }
}

/// siw's driver waits in `rdma_connect` for two minutes, which is not the program's affair. Nor is
/// an answer of the host by then: the program uses the memory of its receives for something else.
#[test]
fn a_silent_host_holds_up_nobody() {
    let siw = host("silent_siw", Kind::Siw, quirk::SLOW);
    let memory = siw.memory(8, Access::LOCAL_WRITE);
    let mut active = siw.look_for(siw.address(200, 1));
    assert!(matches!(event(&mut active), Event::Resolved));
    active.post_receive(&RecvWr::one(1, memory.piece(0, 8))).unwrap();
    active.connect(Offer::default()).unwrap();
    assert!(active.event().unwrap().is_none());
    drop(active);
    assert!(siw.objects() > 1, "the thread that waits has the id");
    Host::end_silence();
    siw.until_left(1);
    let mut octets = [1; 8];
    memory.read(0, &mut octets);
    assert_eq!(octets, [0; 8], "the device has placed what came late");
    // On RoCE the call returns, and no event comes.
    let rxe = host("silent_rxe", Kind::Rxe, 0);
    let mut active = rxe.ask(rxe.address(200, 1), Offer::default());
    assert!(active.event().unwrap().is_none());
}

#[test]
fn a_device_without_the_way_or_an_address_is_named() {
    let (here, there) = (host("way_here", Kind::Siw, 0), host("way_there", Kind::Rxe, 0));
    let mut active = here.look_for(there.address(1, 1));
    let error = active.event().unwrap_err();
    assert!(matches!(&error, DeviceError::NoAddress { device } if device == "way_here"), "{error}");
    assert!(here.device.has_address(here.address(1, 0).ip()));
    assert!(!here.device.has_address(there.address(1, 0).ip()));
    let nowhere = "192.0.2.1:1".parse().unwrap();
    let Event::Failed(why) = event(&mut here.look_for(nowhere)) else { panic!("a way") };
    assert!(matches!(why, ConnectFailed::NoRoute { .. }), "{why}");
}

#[test]
fn a_port_that_is_taken_says_by_whom_it_may_be() {
    for host in hosts("taken", 0) {
        let first = host.listen();
        let error = Listener::open(&host.device, first.address(), 1).unwrap_err();
        assert!(matches!(error, DeviceError::AddressInUse { .. }), "{error}");
        let is_told_what_helps = error.to_string().contains("software answers RNICs, too");
        assert_eq!(is_told_what_helps, host.kind.is_iwarp(), "{error}");
    }
}

/// RFC 5044 §7.1.2: the passive end of an RNIC sends nothing before something has come.
#[test]
fn the_passive_end_may_speak_first() {
    for host in hosts("first", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        active.post_receive(&RecvWr::new(4, Vec::new())).unwrap();
        passive.post_send(&SendWr::send(5, Vec::new())).unwrap();
        let received = completion(&mut active);
        assert_eq!((received.wr_id, received.status), (4, Status::Success));
    }
}

#[test]
fn receives_may_be_posted_before_there_is_a_connection() {
    for host in hosts("early", 0) {
        let listener = host.listen();
        let mut active = host.look_for(listener.address());
        assert!(matches!(event(&mut active), Event::Resolved));
        active.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        active.connect(Offer::default()).unwrap();
        let (mut passive, _) = asked(&listener);
        passive.accept(Offer::default()).unwrap();
        assert!(passive.post_send(&SendWr::send(2, Vec::new())).is_err(), "not before it is connected");
        assert!(matches!(event(&mut active), Event::Connected(_)));
        assert!(matches!(event(&mut passive), Event::Connected(_)));
        passive.post_send(&SendWr::send(2, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).wr_id, 1);
    }
}

/// The connection manager's word goes another way than messages, and may come behind them.
#[test]
fn a_message_of_the_peer_is_word_enough_of_the_connection() {
    for quirks in [0, quirk::NO_WORD] {
        for host in hosts(&format!("word{quirks}_"), quirks) {
            let listener = host.listen();
            let mut active = host.ask(listener.address(), Offer::default());
            let (mut passive, _) = asked(&listener);
            passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
            passive.accept(Offer::default()).unwrap();
            assert!(matches!(event(&mut active), Event::Connected(_)));
            active.post_receive(&RecvWr::new(2, Vec::new())).unwrap();
            active.post_send(&SendWr::send(3, Vec::new())).unwrap();
            assert_eq!((completion(&mut passive).wr_id, passive.is_connected()), (1, true));
            passive.post_send(&SendWr::send(4, Vec::new())).unwrap();
            assert_eq!(completions(&mut active, 2).len(), 2);
            assert!(matches!(event(&mut passive), Event::Connected(_)));
            assert_eq!(completion(&mut passive).wr_id, 4);
            // The owner is told once.
            active.close();
            assert!(matches!(event(&mut passive), Event::Disconnected));
        }
    }
}

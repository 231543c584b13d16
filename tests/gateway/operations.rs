//! Every operation, of every size, and what both ends agree on.

use std::time::Duration;

use rddp_gateway::Options;
use rddp_rnic::{Access, Completed, ConnectError, ConnectOptions, RecvWr, Rnic, SendWr, Status};
use rddp_test_support::pattern;
use rddp_verbs_device::{Event, Offer};

use crate::devices::{self, Kind, completion};
use crate::troubles::still_works;
use crate::world::{PATIENCE, Plain, Program, Told, World, gateway_to, reverse, world};

const SIZES: [usize; 4] = [0, 1, 64 << 10, 1 << 20];

fn write_and_read(plain: &Plain, program: &Program) {
    for len in SIZES {
        let octets = pattern(len, len as u8);
        let (source, sink) = (plain.memory(&octets), plain.memory(&vec![0; len]));
        let done = plain.does(&SendWr::write(1, source.sge(..len), program.remote().at(64)));
        assert_eq!((done.status, done.completed), (Status::Success, Completed::Write));
        // A Read is answered behind the Write.
        let done = plain.does(&SendWr::read(2, sink.sge(..len), program.remote().at(64)));
        assert_eq!((done.status, done.byte_len as usize), (Status::Success, len));
        assert!(program.octets(64, len) == octets && sink.read(0, len).unwrap() == octets, "{len}");
    }
}

fn send_both_ways(world: &World, plain: &Plain, program: &mut Program) {
    for len in SIZES.into_iter().filter(|len| *len <= 64 << 10) {
        let octets = pattern(len, 7);
        let inbox = world.host.memory(64 << 10, Access::LOCAL_WRITE);
        program.end.post_receive(&RecvWr::one(1, inbox.piece(0, 64 << 10))).unwrap();
        let done = plain.does(&SendWr::send(2, plain.memory(&octets).sge(..len)));
        assert_eq!(done.status, Status::Success);
        let received = completion(&mut program.end);
        assert_eq!((received.status, received.byte_len as usize), (Status::Success, len));
        let mut got = vec![0; len];
        inbox.read(0, &mut got);
        assert!(got == octets, "{len}");
        // And back.
        let sink = plain.memory(&vec![0; 64 << 10]);
        plain.qp.post_recv(RecvWr::one(3, sink.whole())).unwrap();
        program.end.post_send(&SendWr::send(4, inbox.piece(0, len))).unwrap();
        let received = plain.completion();
        assert_eq!((received.status, received.byte_len as usize), (Status::Success, len));
        assert!(sink.read(0, len).unwrap() == octets, "{len}");
        assert_eq!(completion(&mut program.end).status, Status::Success);
    }
}

#[test]
fn a_plain_host_writes_reads_and_sends() {
    for kind in [Kind::Rxe, Kind::Adapter, Kind::Siw] {
        let world = world(&format!("gw_ops{}", kind as u8), kind);
        let (plain, mut program) = world.connect();
        write_and_read(&plain, &program);
        send_both_ways(&world, &plain, &mut program);
        drop(plain);
        let (counts, reason) = world.gateway.ended();
        assert!(reason.is_orderly(), "{reason}");
        assert_eq!((counts.writes, counts.reads, counts.sends, counts.receives), (3, 4, 3, 3));
    }
}

#[test]
fn a_plain_host_does_atomics_and_sends_values() {
    let world = world("gw_atomics", Kind::Rxe);
    let (plain, mut program) = world.connect();
    program.memory.write(8, &40_u64.to_ne_bytes());
    let sink = plain.memory(&[0; 8]);
    let there = program.remote().at(8);
    let done = plain.does(&SendWr::fetch_add(1, sink.whole(), there, 2));
    assert_eq!((done.status, sink.read_u64(0).unwrap()), (Status::Success, 40));
    let done = plain.does(&SendWr::cmp_swap(2, sink.whole(), there, 42, 7));
    assert_eq!((done.status, sink.read_u64(0).unwrap()), (Status::Success, 42));
    assert_eq!(program.octets(8, 8), 7_u64.to_ne_bytes());
    let four = [1, 2, 3, 4, 0, 0, 0, 0];
    program.end.post_receive(&RecvWr::new(3, Vec::new())).unwrap();
    plain.qp.post_send(&SendWr::immediate(4, four).unsignaled()).unwrap();
    let received = completion(&mut program.end);
    assert_eq!((received.completed, received.immediate), (Completed::ReceiveImmediate, Some(four)));
    plain.qp.post_recv(RecvWr::new(5, Vec::new())).unwrap();
    program.end.post_send(&SendWr::immediate(6, four)).unwrap();
    let received = plain.completion();
    assert_eq!((received.completed, received.immediate), (Completed::ReceiveImmediate, Some(four)));
}

#[test]
fn a_send_of_a_plain_host_invalidates_a_key() {
    let world = world("gw_invalidate", Kind::Siw);
    let (plain, mut program) = world.connect();
    let window = world.host.open_memory(8);
    let key = window.remote().unwrap().stag;
    program.end.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
    plain.qp.post_send(&SendWr::send_invalidate(2, plain.memory(b"").sge(..0), key)).unwrap();
    // siw invalidates, and does not tell.
    assert_eq!(completion(&mut program.end).status, Status::Success);
    let there = window.remote().unwrap();
    plain.qp.post_send(&SendWr::write_inline(3, b"too late", there)).unwrap();
    assert!(matches!(devices::event(&mut program.end), Event::Disconnected), "the key is still valid");
}

#[test]
fn private_data_go_on_and_the_depth_of_reads_is_that_of_the_device() {
    let world = world("gw_private", Kind::Rxe);
    let options = ConnectOptions { private_data: b"which file?".to_vec(), ord: 6, ..Default::default() };
    let offer = Offer { private_data: b"this one".to_vec(), ird: 4, ..Offer::default() };
    let (plain, program, told) = world.connect_with(&options, offer);
    assert_eq!(program.asked.private_data[..12], *b"which file?\0");
    // A plain host's Reads come to the device's host, and nobody's to the plain host.
    assert_eq!((program.asked.ird, program.asked.ord), (6, 0));
    assert_eq!((program.end.is_connected(), &told.unwrap()[..9]), (true, &b"this one\0"[..]));
    let negotiated = plain.qp.negotiated().unwrap();
    assert_eq!((negotiated.ord, negotiated.peer_ord), (4, Some(0)));
    write_and_read(&plain, &program);
}

#[test]
fn a_refusal_of_the_device_reaches_the_plain_host_with_its_words() {
    let world = world("gw_rejects", Kind::Rxe);
    let plain = Plain::new(&world.rnic);
    let options = ConnectOptions::default();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| plain.qp.connect(world.gateway.address, &options));
        let (end, _) = devices::asked(&world.listener);
        end.reject(b"not today").unwrap();
        match connecting.join().unwrap() {
            Err(ConnectError::Rejected { private_data }) => assert_eq!(private_data[..10], *b"not today\0"),
            connected => panic!("{connected:?}"),
        }
    });
    world.gateway.refused();
    // Nobody listens, and private data are longer than InfiniBand carries.
    let long = ConnectOptions { private_data: vec![1; 57], ..Default::default() };
    let plain = Plain::new(&world.rnic);
    let Err(ConnectError::Rejected { private_data }) = plain.qp.connect(world.gateway.address, &long) else {
        panic!("57 octets of private data");
    };
    let text = String::from_utf8(private_data).unwrap();
    assert!(text.contains("57 octets of private data"), "{text}");
    world.gateway.refused();
    let World { listener, gateway, rnic, .. } = world;
    drop(listener);
    let plain = Plain::new(&rnic);
    let Err(ConnectError::Rejected { private_data }) = plain.qp.connect(gateway.address, &options) else {
        panic!("nobody listens");
    };
    let text = String::from_utf8(private_data).unwrap();
    assert!(text.contains("nothing listens at the host behind it"), "{text}");
}

#[test]
fn markers_and_revision_one_are_spoken() {
    let world = world("gw_markers", Kind::Rxe);
    for options in [
        ConnectOptions { markers: true, ..Default::default() },
        ConnectOptions { revision: rddp_rnic::Revision::One, assumed_ird: 8, ..Default::default() },
        ConnectOptions { rtr: rddp_rnic::RtrSet::only(rddp_rnic::Rtr::Read), ..Default::default() },
        ConnectOptions { mss: Some(536), ..Default::default() },
    ] {
        let (plain, program, told) = world.connect_with(&options, Offer::default());
        told.unwrap();
        write_and_read(&plain, &program);
    }
}

#[test]
fn a_program_behind_the_device_connects_to_a_plain_host() {
    for kind in [Kind::Rxe, Kind::Siw] {
        let rnic = Rnic::open().unwrap();
        let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
        let (gateway, host) = reverse(
            &format!("gw_reverse{}", kind as u8),
            kind,
            &listener.local_addr().unwrap(),
            Options::default(),
        );
        let offer = Offer { private_data: b"hello".to_vec(), ird: 5, ..Offer::default() };
        let mut end = host.ask(gateway.address, offer);
        let request = listener.accept(Some(crate::world::PATIENCE)).unwrap().expect("the gateway connects");
        assert_eq!(&request.private_data()[..5], b"hello");
        let plain = Plain::new(&rnic);
        request.accept(&plain.qp, b"welcome").unwrap();
        let Event::Connected(agreed) = devices::event(&mut end) else { panic!("no connection") };
        // siw has its own number.
        assert!(agreed.private_data.starts_with(b"welcome") && (agreed.ord == 0 || kind == Kind::Siw));
        let program = Program {
            end,
            memory: host.open_memory(crate::world::MEMORY),
            asked: rddp_verbs_device::Asked { private_data: Vec::new(), peer: None, ird: 0, ord: 0 },
        };
        write_and_read(&plain, &program);
        drop(program);
        assert!(gateway.ended().1.is_orderly());
    }
}

#[test]
fn a_refusal_of_the_plain_host_reaches_the_program_behind_the_device() {
    let rnic = Rnic::open().unwrap();
    let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let (gateway, host) =
        reverse("gw_says_no", Kind::Rxe, &listener.local_addr().unwrap(), Options::default());
    let rejected = |end: &mut _| match devices::event(end) {
        Event::Failed(rddp_verbs_device::ConnectFailed::Rejected { private_data }) => {
            String::from_utf8(private_data).unwrap()
        }
        event => panic!("{event:?}"),
    };
    // InfiniBand carries 148 octets, and MPA more.
    for (words, told) in [("no", "no\0"), (&"no".repeat(150), &"no".repeat(74))] {
        let mut end = host.ask(gateway.address, Offer::default());
        let request = listener.accept(Some(crate::world::PATIENCE)).unwrap().expect("the gateway connects");
        request.reject(words.as_bytes()).unwrap();
        assert!(rejected(&mut end).starts_with(told));
    }
    drop(listener);
    let mut end = host.ask(gateway.address, Offer::default());
    let text = rejected(&mut end);
    assert!(text.contains("is not reached"), "{text}");
}

/// A queue pair of the plain host may have several requests outstanding, and all are done.
#[test]
fn many_requests_are_outstanding_at_a_time() {
    let world = world("gw_many", Kind::Adapter);
    let (plain, program) = world.connect();
    let octets = pattern(64 << 10, 3);
    let (source, sink) = (plain.memory(&octets), plain.memory(&vec![0; 64 << 10]));
    for _ in 0..50 {
        for at in 0..8 {
            let there = program.remote().at(at << 16);
            plain.qp.post_send(&SendWr::write(1, source.whole(), there).unsignaled()).unwrap();
            plain.qp.post_send(&SendWr::read(2, sink.whole(), there)).unwrap();
        }
        for _ in 0..8 {
            assert_eq!(plain.completion().status, Status::Success);
        }
    }
    assert!(sink.read(0, 64 << 10).unwrap() == octets);
}

#[test]
fn numbers_and_both_ends_of_a_connection_are_told_while_it_goes_on() {
    let mut world = world("gw_numbers", Kind::Rxe);
    let options = Options { interval: Some(Duration::from_millis(50)), ..Options::default() };
    world.gateway = gateway_to(&world.host, &world.listener.address(), options);
    let (plain, program) = world.connect();
    assert!(matches!(world.gateway.told.recv(), Ok(Told::Opened)));
    for writes in 1..=2 {
        still_works(&plain, &program);
        // One Write may be told of before the answer of its Read.
        let (counts, ends) = loop {
            match world.gateway.told.recv_timeout(PATIENCE).expect("numbers") {
                Told::Moved(counts, ends) if counts.octets_out == writes * 3000 => break (counts, ends),
                Told::Moved(..) => {}
                told => panic!("{told:?}"),
            }
        };
        assert_eq!((counts.writes, counts.reads), (writes, writes));
        assert_eq!(ends.tcp, [Some(world.gateway.address), plain.qp.local_addr()]);
        assert_eq!(ends.device[1], Some(world.listener.address()));
        assert_eq!(ends.device_name, "gw_numbers");
    }
    drop(plain);
    assert_eq!(world.gateway.ended().0.writes, 2);
}

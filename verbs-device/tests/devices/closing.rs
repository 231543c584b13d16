//! Connections that end.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rddp_rdma::{Access, RecvWr, SendWr, Status};
use rddp_verbs_device::{DeviceError, Event, Offer};

use crate::support::{Kind, QUEUES, adapters, completion, event, event_beside, host, hosts, quirk, rnics};

/// To disconnect at once would take a message with it that the peer has, and has not acknowledged.
#[test]
fn a_close_waits_for_what_was_sent() {
    for (host, signaled) in
        hosts("closing", quirk::SLOW).iter().flat_map(|host| [(host, true), (host, false)])
    {
        let (mut active, mut passive) = host.connect_plainly();
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        let mut request = SendWr::send(2, Vec::new());
        request.signaled = signaled;
        active.post_send(&request).unwrap();
        active.close();
        assert!(host.is_real() || active.deadline().is_some());
        assert!(active.post_send(&request).is_err());
        if signaled {
            assert_eq!(completion(&mut active).status, Status::Success);
        }
        assert!(matches!(event(&mut active), Event::Disconnected));
        let mut left = Vec::new();
        active.poll(&mut left).unwrap();
        assert_eq!(left, [], "nothing is flushed");
        assert_eq!(completion(&mut passive).status, Status::Success);
        assert!(matches!(event(&mut passive), Event::Disconnected));
    }
}

/// A message that the peer has, and has acknowledged, is not told to be flushed since the peer ends
/// the connection before this end's device comes to the acknowledgement.
#[test]
fn an_acknowledgement_may_come_behind_the_end() {
    for host in adapters("behind_end", quirk::SLOW) {
        let (mut active, mut passive) = host.connect_plainly();
        active.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        passive.post_send(&SendWr::send(2, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        active.close();
        let mut told = Vec::new();
        assert!(matches!(event_beside(&mut passive, &mut told), Event::Disconnected));
        let sent = told.pop().unwrap_or_else(|| completion(&mut passive));
        assert_eq!((sent.wr_id, sent.status), (2, Status::Success));
    }
}

/// On InfiniBand the other end would go on, and flush nothing, until it disconnects, too.
#[test]
fn the_other_end_of_a_close_is_flushed() {
    for host in hosts("other", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        active.close();
        let mut told = Vec::new();
        assert!(matches!(event_beside(&mut passive, &mut told), Event::Disconnected));
        let flushed = told.pop().unwrap_or_else(|| completion(&mut passive));
        assert_eq!((flushed.wr_id, flushed.status), (1, Status::Flushed));
        assert!(matches!(event(&mut active), Event::Disconnected));
        // That stray packets cannot come any more is nobody's affair.
        assert!(active.event().unwrap().is_none() && passive.event().unwrap().is_none());
    }
}

/// The peer may be silent for as long as it likes.
#[test]
fn probes_that_get_no_answer_do_not_pile_up() {
    for host in hosts("probes", quirk::STALLED) {
        let (mut active, _passive) = host.connect_plainly();
        for _ in 0..100 {
            active.probe().unwrap();
        }
        // Those of the program have their places all the same.
        for _ in 0..QUEUES.sends {
            active.post_send(&SendWr::send(1, Vec::new())).unwrap();
        }
    }
}

/// With seven attempts a device would try for ever; a link that is cut is told by no event.
#[test]
fn a_link_that_is_cut_is_noticed_by_a_probe() {
    let host = host("cut", Kind::Rxe, 0);
    let (mut active, _passive) = host.connect_plainly();
    host.cut();
    active.probe().unwrap();
    assert!(matches!(event(&mut active), Event::Disconnected));
}

/// The connection manager opens a queue pair to all that peers can do.
#[test]
fn peers_have_the_rights_of_the_connection_alone() {
    for host in adapters("inbound", 0) {
        let closed = || Offer { inbound: Access::REMOTE_READ, ..Offer::default() };
        for is_passive in [true, false] {
            let (active, passive) = match is_passive {
                true => host.connect(Offer::default(), closed()),
                false => host.connect(closed(), Offer::default()),
            };
            let (mut writer, _target) = if is_passive { (active, passive) } else { (passive, active) };
            let (memory, source) = (host.open_memory(8), host.memory(8, Access::empty()));
            memory.write(0, b"original");
            let write = SendWr::write(1, source.piece(0, 8), memory.remote().unwrap());
            writer.post_send(&write).unwrap();
            assert!(matches!(event(&mut writer), Event::Disconnected));
            let mut octets = [0; 8];
            memory.read(0, &mut octets);
            assert_eq!(&octets, b"original");
        }
    }
}

/// siw looks at the rights of memory, and at none of a queue pair.
#[test]
fn peers_have_all_rights_of_a_connection_on_siw() {
    for host in rnics("open", 0) {
        let closed = Offer { inbound: Access::empty(), ..Offer::default() };
        let (mut writer, mut target) = host.connect(Offer::default(), closed);
        let (memory, source) = (host.open_memory(8), host.memory(8, Access::empty()));
        source.write(0, b"contents");
        target.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        writer.post_send(&SendWr::write(2, source.piece(0, 8), memory.remote().unwrap())).unwrap();
        writer.post_send(&SendWr::send(3, Vec::new())).unwrap();
        assert_eq!(completion(&mut target).status, Status::Success);
        let mut octets = [0; 8];
        memory.read(0, &mut octets);
        assert_eq!(&octets, b"contents");
    }
}

/// On InfiniBand the device waits for an answer of the other end before it tells of a close.
#[test]
fn a_close_does_not_wait_for_a_peer_that_stands_still() {
    for host in hosts("still", 0) {
        let (mut active, _passive) = host.connect_plainly();
        active.close();
        assert!(matches!(event(&mut active), Event::Disconnected));
        assert!(active.event().unwrap().is_none());
    }
}

/// The connection manager says it again, but not for an id that is gone.
#[test]
fn the_other_end_hears_of_an_end_though_the_first_word_is_lost() {
    for host in adapters("lost", quirk::LOST) {
        for closes in [true, false] {
            let (mut active, mut passive) = host.connect_plainly();
            if closes {
                active.close();
                assert!(matches!(event(&mut active), Event::Disconnected));
            }
            drop(active);
            assert!(matches!(event(&mut passive), Event::Disconnected));
        }
        host.until_nothing_is_left();
    }
    // Ids are one process's, and other tests must not find it full.
    let host = host("unanswered", Kind::Rxe, quirk::LOST);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut passive: Vec<_> = (0..=WAITING)
        .map(|at| {
            let (active, passive) = host.connect_plainly();
            let before = host.objects();
            drop(active);
            // The queue pair and its completion queue go, and beyond the most the id, too.
            host.until_left(before - if at < WAITING { 2 } else { 3 });
            passive
        })
        .collect();
    for passive in &mut passive[..WAITING] {
        assert!(matches!(event(passive), Event::Disconnected));
    }
}

/// Ids that wait for an answer at a time.
const WAITING: usize = 256;

#[test]
fn a_device_that_is_removed_says_so_to_all_that_use_it() {
    let host = host("removed", Kind::Rxe, 0);
    let listener = host.listen();
    let (mut active, _passive) = host.connect_plainly();
    host.remove();
    assert!(matches!(event(&mut active), Event::Removed));
    assert!(active.post_send(&SendWr::send(1, Vec::new())).is_err());
    assert!(matches!(listener.take(), Err(DeviceError::Removed { .. })));
}

#[test]
fn nothing_is_left_of_connections() {
    for host in hosts("left", 0) {
        for turn in 0..50 {
            let (mut active, mut passive) = host.connect_plainly();
            if turn % 2 == 0 {
                active.close();
                assert!(matches!(event(&mut passive), Event::Disconnected));
            }
            drop((active, passive));
        }
        host.until_nothing_is_left();
    }
}

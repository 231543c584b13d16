use rddp_sdp::wire::Message;

use super::*;
use crate::sdp::Stream;
use crate::sys::{Calls, SharedState};
use crate::{Format, Options, Role, SdpOptions};

fn begun() -> Shared {
    let format = Format::Sdp(SdpOptions::DEFAULT);
    let state = SharedState::anonymous(&Options { format, ..Options::new(Role::Initiator) }).unwrap();
    let calls = Calls::libc();
    let mut shared = Stream::new(-1, &state, &calls).unwrap().lock_rx().unwrap().sdp;
    (shared.size, shared.bufs) = (4000, 64);
    shared.begin(64, 4000, 1).unwrap();
    shared
}

/// Returns an end that has taken the peer's `DisConn`.
fn over() -> Shared {
    let (mut peer, mut shared) = (begun(), begun());
    peer.machine().close_sending();
    let front = peer.machine().next_control().unwrap();
    shared.machine().receive(&Message::parse(&front).unwrap()).unwrap();
    assert!(shared.is_over());
    shared
}

#[test]
fn sleepers_are_told_once_each_time_that_something_comes() {
    let mut shared = begun();
    for _ in 0..3 {
        shared.credits.low = 0;
        assert!(shared.tells_more(true, false), "there are many credits");
        assert!(!shared.tells_more(true, false), "they are told already");
        shared.credits.low = u32::MAX;
        assert!(!shared.tells_more(true, false), "there are few");
    }
}

/// Octets count as in flight while the peer may not have given credits for them, and not much
/// longer.
#[test]
fn octets_of_the_newest_messages_may_be_in_flight() {
    let mut shared = begun();
    (0..64).for_each(|_| shared.note_sent(1, 10));
    assert_eq!(shared.in_flight(), 640);
    shared.note_sent(4, 400_000);
    assert_eq!(shared.in_flight(), 400_640);
    (0..63).for_each(|_| shared.note_sent(1, 10));
    assert_eq!(shared.in_flight(), 400_630);
    (0..128).for_each(|_| shared.note_sent(1, 10));
    assert!((640..=1280).contains(&shared.in_flight()));
    shared.note_sent(1, usize::MAX);
    shared.note_sent(usize::MAX, 1);
    assert_eq!(shared.in_flight(), u32::MAX as usize);
}

#[test]
fn a_reset_is_told_once_and_not_behind_the_peers_end() {
    for (mut shared, first) in [(begun(), Err(Errno::RESET)), (over(), Ok(()))] {
        shared.note_lost(Errno::RESET);
        assert_eq!((shared.note_fin(), shared.note_fin()), (first, Ok(())));
        assert!(shared.nothing_comes());
        assert_eq!(shared.ended_by_fin(), first.is_err());
    }
}

/// Short messages in the queue have no buffers but those that their octets would fill.
#[test]
fn messages_in_the_queue_have_the_buffers_that_their_octets_fill() {
    let (mut peer, mut shared) = (begun(), begun());
    for _ in 0..10 {
        let front = peer.machine().data(1, false).unwrap();
        let message = [&front[..], b"x"].concat();
        shared.machine().receive(&Message::parse(&message).unwrap()).unwrap();
    }
    shared.queue.bufs = 10;
    for (octets, held) in [(39_840, 10), (7969, 3), (7968, 2), (3984, 1), (1, 1), (0, 0)] {
        shared.give_back_bufs(octets);
        assert_eq!((shared.queue.bufs, shared.stub_and_bufs().1), (held, 64 - held), "{octets}");
    }
}

/// A message frees its buffer when its last segment is read, and the segments of a Response are
/// none of a message.
#[test]
fn a_buffer_is_free_again_when_its_message_is_read() {
    let (mut peer, mut shared) = (begun(), begun());
    let front = peer.machine().data(1, false).unwrap();
    let message = [&front[..], b"x"].concat();
    shared.machine().receive(&Message::parse(&message).unwrap()).unwrap();
    let all = 64;
    for (is_open, is_tagged, free) in [(1, 0, all - 1), (0, 1, all - 1), (0, 0, all)] {
        (shared.message.has_payload, shared.message.is_open, shared.message.is_tagged) =
            (1, is_open, is_tagged);
        shared.consumed();
        assert_eq!(shared.stub_and_bufs().1, free, "open {is_open}, tagged {is_tagged}");
    }
}

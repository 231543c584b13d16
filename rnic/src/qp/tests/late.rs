//! Acknowledgements that go with what the program posts, and those that do not wait for ever.

use rddp_iwarp::Acknowledgement;

use super::acknowledged::{End, send};
use super::*;

/// Time for which a wait finds nothing.
const SHORT: Duration = Duration::from_millis(1);

impl End {
    /// Has the program have answered the last message at once, or not.
    fn pretend_answers(&self, answers: bool) {
        self.with_connection(|connection| connection.parts().1.pretend_answers(answers));
    }

    /// Leaves the socket to a program that polls.
    fn leave_to_program(&self) {
        let driver = self.qp.inner.anywhere().attrs.device.driver.clone();
        self.with_connection(|connection| connection.watch.leave_to_program(&driver));
    }

    fn with_connection<T>(&self, f: impl FnOnce(&mut Connection) -> T) -> T {
        self.qp.inner.anywhere().with_core(|_, core| f(core.connection.as_mut().unwrap()))
    }

    fn owes(&self) -> bool {
        self.with_connection(|connection| connection.owes_acknowledgement())
    }

    /// Posts a receive, and has the peer send the message with this number for it.
    fn send_to(&mut self, msn: u32) {
        self.qp.post_recv(RecvWr::one(u64::from(msn), self.region.sge(0..100))).unwrap();
        self.arrive(&[send(msn)]);
    }

    /// Polls until there is a completion.
    fn poll(&self) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.cq.poll_one() {
                return done.wr_id;
            }
            assert!(Instant::now() < deadline, "no completion came");
        }
    }

    fn acknowledged(&mut self) -> Option<Acknowledgement> {
        Acknowledgement::parse(&self.segment())
    }
}

#[test]
fn an_acknowledgement_goes_with_the_answer() {
    let mut end = End::new();
    end.leave_to_program();
    end.pretend_answers(true);
    for number in 1..4 {
        end.send_to(number);
        assert_eq!(end.poll(), u64::from(number));
        assert!(end.owes());
        let before = end.qp.counters();
        end.qp.post_send(&SendWr::send_inline(9, b"an answer")).unwrap();
        let after = end.qp.counters();
        assert_eq!(after.fpdus_sent - before.fpdus_sent, 1, "and an acknowledgement");
        assert_eq!(after.send_calls - before.send_calls, 1);
        assert_eq!(end.acknowledged(), Some(Acknowledgement::of(number)));
        assert!(end.segment().ends_with(b"an answer"));
        assert!(!end.owes());
    }
}

/// A program that polls and finds nothing has nothing to answer for now.
#[test]
fn an_acknowledgement_without_an_answer_goes_at_the_next_poll() {
    let mut end = End::new();
    end.leave_to_program();
    end.pretend_answers(true);
    end.send_to(1);
    assert_eq!((end.poll(), end.owes()), (1, true));
    await_that("the acknowledgement does not go", || end.cq.poll_one().is_none() && !end.owes());
    assert_eq!(end.acknowledged(), Some(Acknowledgement::of(1)));
    assert!(
        !end.with_connection(|connection| connection.parts().1.answers_at_once()),
        "and the next one does not wait"
    );
}

#[test]
fn an_acknowledgement_goes_before_its_program_sleeps() {
    let mut end = End::new();
    end.leave_to_program();
    // Waits that have found nothing go to sleep at once.
    (0..4).for_each(|_| assert!(!end.cq.wait(Some(SHORT)).unwrap()));
    end.pretend_answers(true);
    end.send_to(1);
    assert_eq!((end.poll(), end.owes()), (1, true));
    let cq = end.cq.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(cq.wait(Some(2 * PATIENCE)).unwrap()));
        assert_eq!(end.acknowledged(), Some(Acknowledgement::of(1)));
        end.send_to(2);
    });
}

/// A program that sleeps reads its next message only when that comes.
#[test]
fn a_thread_that_sleeps_holds_no_acknowledgement_back() {
    let mut end = End::new();
    end.leave_to_program();
    end.pretend_answers(true);
    end.send_to(1);
    assert!(end.cq.wait(Some(PATIENCE)).unwrap());
    assert_eq!((end.acknowledged(), end.owes()), (Some(Acknowledgement::of(1)), false));
}

/// A program that watches its memory, which the background thread writes, may say nothing.
#[test]
fn the_background_thread_waits_for_a_moment_only() {
    let mut end = End::new();
    for number in 1..4 {
        end.pretend_answers(true);
        let write = end.write(1);
        end.arrive(&[write]);
        assert_eq!(end.acknowledged(), Some(Acknowledgement::of(number)));
        assert!(!end.with_connection(|connection| connection.parts().1.answers_at_once()));
    }
}

/// A program that has polled once may do something else for long.
#[test]
fn a_program_that_polls_now_and_then_holds_it_back_for_a_moment_only() {
    let mut end = End::new();
    end.leave_to_program();
    end.pretend_answers(true);
    end.send_to(1);
    assert_eq!((end.poll(), end.owes()), (1, true));
    assert_eq!(end.acknowledged(), Some(Acknowledgement::of(1)));
    assert!(!end.with_connection(|connection| connection.parts().1.answers_at_once()));
}

/// By an epoll set a poll tries the connections alone that have something to read.
#[test]
fn polls_that_try_other_connections_do_not_hold_it_back_for_ever() {
    let mut end = End::new();
    end.cq.0.anywhere().use_epoll().unwrap();
    end.pretend_answers(true);
    end.send_to(1);
    assert_eq!(end.poll(), 1);
    let deadline = Instant::now() + PATIENCE;
    while end.owes() {
        assert!(end.cq.poll_one().is_none() && Instant::now() < deadline, "it does not go");
    }
    assert_eq!(end.acknowledged(), Some(Acknowledgement::of(1)));
}

#[test]
fn several_messages_are_acknowledged_at_once() {
    let mut end = End::new();
    end.leave_to_program();
    end.pretend_answers(true);
    (1..3).for_each(|id| end.qp.post_recv(RecvWr::one(id, end.region.sge(0..100))).unwrap());
    end.arrive(&[send(1), send(2)]);
    assert_eq!(end.poll(), 1);
    assert_eq!(end.acknowledged(), Some(Acknowledgement::of(2)));
}

/// A program that ends a connection acknowledges what has come on it.
#[test]
fn an_acknowledgement_goes_before_the_end() {
    let ends: [fn(&Rnic, QueuePair) -> Option<QueuePair>; 4] = [
        |_, qp| {
            drop(qp);
            None
        },
        |_, qp| {
            qp.abort();
            Some(qp)
        },
        |_, qp| {
            qp.terminate();
            Some(qp)
        },
        |rnic, qp| {
            rnic.linger(Duration::ZERO);
            Some(qp)
        },
    ];
    for ends in ends {
        let rnic = Rnic::open().unwrap();
        let mut end = End::on(&rnic);
        end.leave_to_program();
        end.pretend_answers(true);
        end.send_to(1);
        assert_eq!((end.poll(), end.owes()), (1, true));
        let End { mut peer, mut fpdus, cq, qp, region, _pd } = end;
        let qp = ends(&rnic, qp);
        let mut octets = [0; 100];
        let count = peer.read(&mut octets).unwrap();
        fpdus.take(&octets[..count]);
        assert_eq!(Acknowledgement::parse(&fpdus.next_ulpdu().unwrap()), Some(Acknowledgement::of(1)));
        drop((peer, qp, cq, region));
    }
}

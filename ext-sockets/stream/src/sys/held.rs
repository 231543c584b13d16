//! The locks of directions that a thread has, as debug builds watch them: receiving is taken before
//! sending, and none is held asleep.
//!
//! A call begins without any. What a call holds that a signal handler has interrupted, or left by a
//! jump, is not held by the calls that the handler, or the program behind the jump, makes.

use std::cell::Cell;

thread_local! {
    /// Bits of the locks. Nothing to allocate or to drop: calls are made in handlers, too.
    static HELD: Cell<u8> = const { Cell::new(0) };
}

/// Begins a call of the stream.
pub(crate) fn begin_call() {
    if cfg!(debug_assertions) {
        HELD.set(0);
    }
}

/// Notes that this thread has taken a lock.
pub(super) fn note(lock: u8) {
    if cfg!(debug_assertions) {
        HELD.set(HELD.get() | lock);
    }
}

/// Notes that this thread gives a lock back.
pub(super) fn forget(lock: u8) {
    if cfg!(debug_assertions) {
        HELD.set(HELD.get() & !lock);
    }
}

/// Asserts that this thread may wait for a lock: it has none that is taken behind it.
pub(super) fn assert_order(lock: u8) {
    debug_assert!(HELD.get() < 2 * lock, "locks are taken receiving, then sending");
}

/// Asserts that this thread may sleep.
pub(super) fn assert_none() {
    debug_assert!(HELD.get() == 0, "a lock is held asleep");
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::sys::{Calls, SharedState};
    use crate::{Options, Role, Stream};

    const SHORT: Option<Duration> = Some(Duration::from_millis(1));

    fn state() -> SharedState {
        SharedState::anonymous(&Options::new(Role::Initiator)).unwrap()
    }

    #[test]
    #[should_panic(expected = "locks are taken receiving, then sending")]
    fn the_lock_for_receiving_is_not_taken_behind_that_for_sending() {
        let state = state();
        let _tx = state.tx.lock();
        let _ = state.rx.lock();
    }

    #[test]
    #[should_panic(expected = "a lock is held asleep")]
    fn no_lock_is_held_in_poll() {
        let (state, calls) = (state(), Calls::libc());
        let stream = Stream::new(-1, &state, &calls).unwrap();
        let _rx = stream.lock_rx();
        let _ = stream.kernel.poll(0, SHORT);
    }

    /// Takes a lock in the look before a sleep, and keeps it.
    fn sleep_by_edges(with_signals_held: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (state, calls) = (state(), Calls::libc());
        let kernel = Stream::new(tcp.as_raw_fd(), &state, &calls).unwrap().kernel;
        if with_signals_held {
            let look = || Ok(Some((state.tx.lock(), SHORT, None)));
            kernel.sleep_with_signals_held(Duration::ZERO, look).unwrap();
        } else {
            kernel.sleep_by_edges(Duration::ZERO, || Ok(Some((state.rx.lock(), SHORT)))).unwrap();
        }
    }

    #[test]
    #[should_panic(expected = "a lock is held asleep")]
    fn no_lock_is_held_in_a_sleep_by_edges() {
        sleep_by_edges(false);
    }

    #[test]
    #[should_panic(expected = "a lock is held asleep")]
    fn no_lock_is_held_in_a_sleep_with_signals_held() {
        sleep_by_edges(true);
    }

    #[test]
    fn a_call_in_the_middle_of_another_may_lock_and_sleep() {
        let (one, other, calls) = (state(), state(), Calls::libc());
        let outer = Stream::new(-1, &one, &calls).unwrap();
        let _tx = outer.lock_tx();
        let inner = Stream::new(-1, &other, &calls).unwrap();
        drop((inner.lock_rx(), inner.lock_tx()));
        assert!(inner.kernel.poll(0, SHORT).is_ok());
    }

    #[test]
    fn a_question_to_a_state_in_the_middle_of_a_call_may_lock() {
        let (one, other, calls) = (state(), state(), Calls::libc());
        let outer = Stream::new(-1, &one, &calls).unwrap();
        let _tx = outer.lock_tx();
        assert!(other.peer_private_data().is_none());
    }
}

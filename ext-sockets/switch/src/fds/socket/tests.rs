use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;

use rddp_stream::{Caller, Role};

use super::*;

#[test]
fn a_socket_is_ours_until_its_last_number_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.try_clone().unwrap();
    let (fd, again) = (listener.as_raw_fd(), other.as_raw_fd());
    assert!(hold(fd).is_none());
    let held = adopt(fd, Settings { ird: 7, ..Settings::default() }).unwrap();
    share(&held, again);
    drop(held);
    forget(fd);
    assert!(hold(fd).is_none());
    assert_eq!(hold_checked(again).unwrap().settings().ird, 7);
    let socket = hold(again).unwrap().socket();
    forget(again);
    assert_eq!(socket.uses.count(), 0);
}

#[test]
fn a_number_under_which_something_else_is_open_is_forgotten() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let held = adopt(socket.as_raw_fd(), Settings::default()).unwrap();
    // Stands for `other` coming under a number that was closed without our notice.
    share(&held, other.as_raw_fd());
    assert!(hold_checked(socket.as_raw_fd()).is_some());
    assert!(hold_checked(other.as_raw_fd()).is_none());
    assert!(hold(other.as_raw_fd()).is_none());
    forget(socket.as_raw_fd());
}

#[test]
fn a_file_that_is_no_socket_is_not_adopted() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(adopt(file.as_raw_fd(), Settings::default()).is_err());
    assert!(adopt(-1, Settings::default()).is_err());
}

#[test]
fn children_of_a_listener_in_ddpmode_are_responders() {
    let asked = Settings { mode: Mode::Asked, crc: false, ..Settings::default() };
    let child = asked.of_child();
    assert_eq!((child.mode, child.role, child.crc), (Mode::Starting, Some(Role::Responder), false));
    assert_eq!(Settings::default().of_child(), Settings::default());
}

#[test]
fn threads_that_close_duplicate_and_look_leave_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = listener.as_raw_fd();
    let first = adopt(fd, Settings { ird: 9, ..Settings::default() }).unwrap();
    // Numbers that are no descriptors of this process.
    let numbers = 900_000..900_004;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (numbers, first) = (numbers.clone(), &first);
            scope.spawn(move || {
                for turn in 0..5_000 {
                    let number = numbers.start + (thread * 7 + turn) % 4;
                    match turn % 3 {
                        0 => share(first, number),
                        1 => forget(number),
                        _ => {
                            if let Some(held) = hold(number) {
                                assert_eq!(held.settings().ird, 9);
                            }
                        }
                    }
                }
            });
        }
    });
    numbers.for_each(forget);
    forget(fd);
    let socket = first.socket();
    assert_eq!(socket.uses.count(), 1, "only the use of this test is left");
    drop(first);
    assert_eq!(socket.uses.count(), 0);
}

#[test]
fn a_number_is_closed_when_no_call_is_at_work_on_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = listener.as_raw_fd();
    let held = adopt(fd, Settings::default()).unwrap();
    let is_through = AtomicBool::new(false);
    let call = held.work_on(fd).unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            assert!(forget_before_close(fd).is_some());
            assert!(is_through.load(Ordering::SeqCst), "the call goes on");
        });
        while held.work_on(fd).is_some() {
            std::thread::yield_now();
        }
        is_through.store(true, Ordering::SeqCst);
        drop(call);
        closing.join().unwrap();
    });
}

#[test]
fn a_sleeping_call_does_not_delay_close_and_notices_it_when_it_wakes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = listener.as_raw_fd();
    let held = adopt(fd, Settings::default()).unwrap();
    let call = held.work_on(fd).unwrap();
    call.sleeps();
    assert!(call.wakes(), "the number is still this socket's");
    call.sleeps();
    assert!(forget_before_close(fd).is_some());
    let other = adopt(fd, Settings::default()).unwrap();
    assert!(!call.wakes(), "the number is another socket's");
    forget_stale(fd, &held);
    assert!(hold(fd).is_some(), "the other socket stays known");
    drop(other);
    forget(fd);
}

#[test]
fn a_number_to_come_counts_before_it_is_given() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = listener.as_raw_fd();
    drop(adopt(fd, Settings::default()).unwrap());
    let held = expect_number(fd).unwrap();
    assert!(forget_before_close(fd).is_none());
    assert!(!held.is_closed());
    assert!(held.one_less() && held.is_closed());
    assert!(expect_number(fd).is_none());
}

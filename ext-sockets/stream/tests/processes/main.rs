//! One stream in several processes. The tests have a program of their own and run one at a time: a
//! child has every descriptor of its parent.

#[allow(dead_code, reason = "shared with the other tests of streams")]
#[path = "../stream/common.rs"]
mod common;
#[path = "../stream/either.rs"]
mod either;
#[cfg(target_arch = "x86_64")]
mod steps;
#[cfg(target_arch = "x86_64")]
mod traced;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rddp_stream::{Errno, Format, Options, SdpOptions};
use rddp_test_support::{Random, pattern_from, random_octets};

use common::{End, initiator, pair, responder};
use either::Stream;

/// Lock of each test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sdp(options: Options) -> Options {
    Options { format: Format::Sdp(SdpOptions::DEFAULT), ..options }
}

/// Options for each format.
const FORMATS: [fn(Options) -> Options; 2] = [|options| options, sdp];

/// Runs `body` in a child of `fork`, which ends with it.
fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child calls only the stream and `_exit`; neither takes a lock that another thread
    // of the parent could have held, but for the allocator's, which the C library makes safe to use
    // after `fork`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without the harness' exit handlers.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    pid
}

fn join(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of ours; the status lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn read_exactly(end: &End, count: usize) -> Vec<u8> {
    let mut all = vec![0; count];
    let got = end.recv(&mut all, libc::MSG_WAITALL).unwrap();
    all.truncate(got);
    all
}

#[test]
fn a_child_reads_while_its_parent_writes() {
    let _alone = alone();
    for of in FORMATS {
        let (a, b) = pair(&of(initiator()), &of(responder()));
        let (to_b, to_a) = (random_octets(1, 3_000_000), random_octets(2, 3_000_000));
        let reader = fork(|| assert!(read_exactly(&a, to_a.len()) == to_a));
        std::thread::scope(|scope| {
            scope.spawn(|| to_b.chunks(10_000).for_each(|chunk| a.send_all(chunk)));
            scope.spawn(|| to_a.chunks(10_000).for_each(|chunk| b.send_all(chunk)));
            assert!(read_exactly(&b, to_b.len()) == to_b);
        });
        assert_eq!(join(reader), 0);
    }
}

#[test]
fn a_direction_passes_from_process_to_process() {
    let _alone = alone();
    for of in FORMATS {
        let (a, b) = pair(&of(initiator()), &of(responder()));
        for round in 0..20u8 {
            let child = fork(|| {
                a.send_all(&[round; 5000]);
                assert_eq!(read_exactly(&a, 3), [round, round, round]);
            });
            assert_eq!(read_exactly(&b, 5000), [round; 5000]);
            b.send_all(&[round; 7]);
            assert_eq!(join(child), 0);
            // These octets are the rest of an FPDU that the child has begun.
            assert_eq!(read_exactly(&a, 4), [round; 4]);
            a.send_all(b"parent");
            assert_eq!(read_exactly(&b, 6), b"parent");
        }
    }
}

/// A process takes a part of a message whose length it thought it knew. The part is in memory that
/// both processes have, and the other one sleeps until the rest has come.
#[test]
fn a_part_that_one_process_has_taken_is_read_by_another() {
    let _alone = alone();
    let (mut peer, end) = common::by_ready_initiator();
    for (len, cut) in [(64, 1), (64, 50), (64, 84), (64, 85), (64, 87), (200, 60), (200, 88), (200, 223)] {
        for _ in 0..2 {
            peer.send_message(&[7; 64]);
            assert_eq!(read_exactly(&end, 64), [7; 64]);
        }
        let (octets, mut seen) = (random_octets(1, len), [0; 300]);
        let fpdu = peer.frame_message(&octets);
        peer.octets(&fpdu[..cut]);
        while end.tcp.peek(&mut seen).unwrap() < cut {
            std::thread::yield_now();
        }
        let taker = fork(|| {
            assert_eq!(end.recv(&mut [0; 64], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
        });
        assert_eq!(join(taker), 0);
        assert!(!end.readable(), "{cut} of {len}");
        let reader = fork(|| {
            assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
            assert_eq!(read_exactly(&end, len), octets);
        });
        peer.octets(&fpdu[cut..]);
        assert_eq!(join(reader), 0, "{cut} of {len}");
    }
}

#[test]
fn the_startup_is_done_by_the_process_that_needs_it() {
    let _alone = alone();
    for of in FORMATS {
        let (a, b) = common::fresh_pair(&of(initiator()), &of(responder()));
        let child = fork(|| assert_eq!(read_exactly(&b, 5), b"child"));
        a.send_all(b"child");
        assert_eq!(join(child), 0);
        a.send_all(b"parent");
        assert_eq!(read_exactly(&b, 6), b"parent");
    }
}

/// Returns whether there are seccomp filters: with them, a filter at a bad address is refused with
/// EFAULT.
fn can_be_confined() -> bool {
    let nowhere: *const libc::sock_fprog = std::ptr::null();
    // SAFETY: the kernel refuses an address that it cannot read; nothing changes.
    let refused = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, nowhere) };
    refused < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Leaves this process the system calls that a confined child of `sshd` has; any other one kills
/// it.
fn confine() {
    let allowed = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_ppoll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_shutdown,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_exit_group,
        // A panic's message names the thread.
        libc::SYS_gettid,
    ];
    let step = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // The program loads the call's number; for each allowed one it skips to the end; else it kills.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, number) in allowed.iter().enumerate() {
        let to_the_end = (allowed.len() - at) as u8;
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_the_end, *number as u32));
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS));
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    rddp_stream::confine();
    // SAFETY: the program lives until the call returns, and its jumps stay inside it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

// Like the pre-authentication child of sshd, the child may read, write and poll; other calls kill
// it.
#[test]
fn a_child_that_may_only_read_write_and_poll_has_the_stream() {
    let _alone = alone();
    if !can_be_confined() {
        eprintln!("not checked: this kernel has no seccomp filters");
        return;
    }
    for of in FORMATS {
        for markers in [false, true] {
            let (a, b) = pair(&of(initiator()), &of(Options { markers, ..responder() }));
            // A process that was not prepared for it sends short messages, and moves no octets out
            // of the way of credits: there have to be credits for all.
            let few = of(initiator()).format != Format::Octets;
            let data = random_octets(3, if few { 100_000 } else { 700_000 });
            let child = fork(|| {
                confine();
                let mut left = data.len();
                while left > 0 {
                    assert_ne!(b.poll(libc::POLLIN, Duration::from_secs(20)).0, 0);
                    let mut octets = [0; 8192];
                    let count = b.recv(&mut octets, 0).unwrap();
                    b.send_all(&octets[..count]);
                    left -= count;
                }
                // The child reads a part of an FPDU, whose rest is for the parent.
                assert_eq!(read_exactly(&b, 3), b"chi");
                // What only other calls could answer has an answer that kills nobody.
                assert!(!b.stream().has_more_than_a_look());
            });
            std::thread::scope(|scope| {
                scope.spawn(|| data.chunks(33_000).for_each(|chunk| a.send_all(chunk)));
                assert!(read_exactly(&a, data.len()) == data);
            });
            a.send_all(b"child and parent");
            assert_eq!(join(child), 0, "killed by a system call?");
            assert_eq!(b.poll(libc::POLLIN, Duration::from_secs(5)).0, libc::POLLIN);
            assert_eq!(read_exactly(&b, 13), b"ld and parent");
            a.send_all(b"on it goes");
            assert_eq!(read_exactly(&b, 10), b"on it goes");
        }
    }
}

// A peer that breaks the protocol must not have the kernel kill the child.
#[test]
fn a_confined_child_can_end_a_connection() {
    let _alone = alone();
    if !can_be_confined() {
        return;
    }
    for of in FORMATS {
        let (a, b) = pair(&of(initiator()), &of(responder()));
        let child = fork(|| {
            confine();
            b.stream().abandon();
        });
        assert_eq!(join(child), 0, "killed by a system call?");
        assert_eq!(a.tcp.peek(&mut [0]).unwrap(), 0);
    }
}

// Credits lie behind octets that nobody reads: a confined process moves them to memory that it has
// got before.
#[test]
fn a_confined_child_reaches_credits_behind_unread_octets() {
    let _alone = alone();
    if !can_be_confined() {
        return;
    }
    let few = SdpOptions { bufs: 1, size: 2000, ..SdpOptions::DEFAULT };
    let of = |options| Options { format: Format::Sdp(few), ..options };
    for markers in [false, true] {
        let (a, b) = pair(&of(initiator()), &of(Options { markers, ..responder() }));
        let data = random_octets(5, 50_000);
        a.send_all(&data);
        b.stream().prepare_to_confine();
        let child = fork(|| {
            confine();
            assert_eq!(read_exactly(&b, 10), &data[..10]);
            for _ in 0..1000 {
                b.send_all(b"x");
            }
            assert_eq!(read_exactly(&b, 30_000), &data[10..30_010]);
        });
        assert_eq!(read_exactly(&a, 1000), [b'x'; 1000]);
        assert_eq!(join(child), 0, "killed by a system call?");
        // The rest is in memory, and the parent finds it there.
        assert_eq!(b.poll(libc::POLLIN, Duration::from_secs(5)).0, libc::POLLIN);
        a.send_all(b"behind");
        assert_eq!(read_exactly(&b, 20_000 - 10), &data[30_010..]);
        assert_eq!(read_exactly(&b, 6), b"behind");
        assert_eq!(b.poll(libc::POLLIN, Duration::ZERO).0, 0);
    }
}

// A process that is killed at any moment, in the middle of a write or a read, does not hang the
// others: they go on, or get the error that the stream is over, and no octet is wrong.
#[test]
fn a_process_killed_at_any_moment_hangs_nobody() {
    let _alone = alone();
    let mut random = Random::new(11);
    let (mut died, mut went_on) = (0, 0);
    for _ in 0..100 {
        let (a, b) = pair(&initiator(), &responder());
        let writer = fork(|| {
            let mut at = 0;
            loop {
                let count = 1 + (at * 7) % 30_000;
                if a.send(&pattern_from(at, count)) != Ok(count) {
                    return;
                }
                at += count;
            }
        });
        let mut got = read_some(&b, 0);
        std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(writer, libc::SIGKILL) };
        join(writer);
        // The parent has the socket too, and goes on where the child stopped.
        b.state.set_receive_timeout(Some(Duration::from_secs(10)));
        std::thread::scope(|scope| {
            let parent = scope.spawn(|| {
                let _ = a.stream().finish(Duration::from_secs(10));
                a.stream().shutdown(libc::SHUT_WR)
            });
            let end = loop {
                match read_some_or_end(&b, got) {
                    Ok(0) => break Ok(()),
                    Ok(count) => got += count,
                    Err(error) => break Err(error),
                }
            };
            let shut = parent.join().unwrap();
            match (end, a.state.ended()) {
                (Ok(()), None) => went_on += 1,
                (Err(Errno::RESET), Some(ended)) => {
                    assert_eq!((ended.errno, shut.is_ok()), (Errno::ABORTED, false));
                    died += 1;
                }
                other => panic!("{other:?}, {shut:?}"),
            }
        });
    }
    assert_eq!(died + went_on, 100);
    assert!(went_on > 0);
}

#[test]
fn a_process_killed_in_a_message_hangs_nobody() {
    let _alone = alone();
    let mut random = Random::new(13);
    let (mut died, mut went_on) = (0, 0);
    for _ in 0..100 {
        let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
        let writer = fork(|| {
            let mut at = 0;
            loop {
                let count = 1 + (at * 7) % 30_000;
                if a.send(&pattern_from(at, count)) != Ok(count) {
                    return;
                }
                at += count;
            }
        });
        let mut got = read_some(&b, 0);
        std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(writer, libc::SIGKILL) };
        join(writer);
        b.state.set_receive_timeout(Some(Duration::from_secs(10)));
        std::thread::scope(|scope| {
            let parent = scope.spawn(|| {
                let shut = a.stream().shutdown(libc::SHUT_WR);
                while a.stream().owes() && a.state.ended().is_none() {
                    a.stream().step();
                    std::thread::yield_now();
                }
                shut
            });
            let end = loop {
                match read_some_or_end(&b, got) {
                    Ok(0) => break Ok(()),
                    Ok(count) => got += count,
                    Err(error) => break Err(error),
                }
            };
            let shut = parent.join().unwrap();
            match (end, a.state.ended()) {
                (Ok(()), None) => went_on += 1,
                (Err(Errno::RESET), Some(ended)) => {
                    assert_eq!(ended.errno, Errno::ABORTED);
                    died += 1;
                }
                other => panic!("{other:?}, {shut:?}"),
            }
        });
    }
    assert_eq!(died + went_on, 100);
    assert!(went_on > 0);
}

fn read_some(end: &End, at: usize) -> usize {
    read_some_or_end(end, at).unwrap()
}

fn read_some_or_end(end: &End, at: usize) -> Result<usize, Errno> {
    let octets = end.read(20_000)?;
    assert!(octets == pattern_from(at, octets.len()), "wrong octets at {at}");
    Ok(octets.len())
}

#[test]
fn a_reader_killed_at_any_moment_hangs_nobody() {
    let _alone = alone();
    for of in FORMATS {
        let mut random = Random::new(12);
        for _ in 0..50 {
            let (a, b) = pair(&of(initiator()), &of(responder()));
            let reader = fork(|| while b.read(1 + 5000).is_ok_and(|octets| !octets.is_empty()) {});
            a.state.set_send_timeout(Some(Duration::from_secs(10)));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut at = 0;
                    while a.send(&pattern_from(at, 10_000)) == Ok(10_000) {
                        at += 10_000;
                    }
                });
                std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
                // SAFETY: a child of ours that has not been waited for.
                unsafe { libc::kill(reader, libc::SIGKILL) };
                join(reader);
                b.state.set_receive_timeout(Some(Duration::from_secs(10)));
                let got = b.read(100);
                assert!(
                    matches!(&got, Ok(octets) if !octets.is_empty()) || got == Err(Errno::ABORTED),
                    "{got:?}"
                );
                // The end has unread octets, so that its close is a reset, which ends the writer.
                drop(b);
            });
        }
    }
}

//! Several calls, threads and processes on a socket whose peer advertises.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rddp_stream::Errno;
use rddp_test_support::random_octets;

use crate::advertising::{Came, RD_COMPL, TO};
use crate::common::{End, kernel_poll};
use crate::peer::{Sdp, number};

const INLINE: usize = 10;

#[test]
fn two_threads_share_the_octets_of_an_advert() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(1, 900_000);
    let got = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            peer.advertise(octets.len(), &octets[..INLINE]);
            peer.serve(&octets, INLINE, 30_000);
            peer.message(2, &[], b"");
        });
        for room in [100_000, 3_000] {
            let (end, got, octets) = (&end, &got, &octets);
            scope.spawn(move || {
                loop {
                    let part = end.read(room).unwrap();
                    if part.is_empty() {
                        break;
                    }
                    // Each part is one run of the stream's octets.
                    assert!(room > 3_000 || is_within(octets, &part));
                    got.fetch_add(part.len(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((got.into_inner(), end.state.ended()), (octets.len(), None));
}

fn is_within(octets: &[u8], part: &[u8]) -> bool {
    part.len() < 16 || octets.windows(16).any(|window| window == &part[..16])
}

/// Begins a Read of `len` octets in a process that then stops, or dies; returns that process.
fn begun_by_another(end: &End, stops: bool) -> libc::pid_t {
    // SAFETY: the child only makes calls of this library, which allocate nothing, and signals.
    match unsafe { libc::fork() } {
        0 => {
            let mut room = [0; 20_000];
            let _ = end.recv(&mut room, 0);
            let signal = if stops { libc::SIGSTOP } else { libc::SIGKILL };
            // SAFETY: a signal for this process.
            unsafe {
                libc::kill(libc::getpid(), signal);
                libc::_exit(0)
            }
        }
        child => child,
    }
}

#[test]
fn a_read_of_a_process_that_stops_or_dies_is_anothers() {
    for stops in [false, true] {
        let (mut peer, end) = Sdp::connected();
        let octets = random_octets(2, 100_000);
        peer.advertise(octets.len(), &octets[..INLINE]);
        let child = begun_by_another(&end, stops);
        let read = peer.read();
        let mut status = 0;
        let flags = if stops { libc::WUNTRACED } else { 0 };
        // SAFETY: the child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, flags) }, child);
        peer.answer(&read, &octets[INLINE..], 40_000);
        let mut got = vec![0; octets.len() - INLINE];
        assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(got.len()));
        assert!(got == octets[INLINE..], "stops: {stops}");
        assert_eq!(number(&peer.told(), 16) as usize, octets.len() - INLINE);
        if stops {
            // SAFETY: the child, which is stopped.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
        }
    }
}

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn a_signal_ends_a_call_and_its_memory_gets_nothing_more() {
    // SAFETY: a handler that does nothing, and restarts no call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
    }
    for in_the_middle in [false, true] {
        let (mut peer, end) = Sdp::connected();
        let octets = random_octets(3, 60_000);
        peer.pipelined();
        peer.advertise(octets.len(), b"");
        let (read, count, mut buffer) = thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let reading = scope.spawn({
                let end = &end;
                move || {
                    // SAFETY: the calling thread's.
                    tell.send(unsafe { libc::pthread_self() }).unwrap();
                    let mut buffer = vec![0; 100_000];
                    let got = end.recv(&mut buffer, libc::MSG_WAITALL);
                    (got, buffer)
                }
            });
            let target = told.recv().unwrap();
            let read = peer.read();
            if in_the_middle {
                peer.respond(read.sink_stag, 0, false, &octets[..9_000]);
                while kernel_poll(&end.tcp, libc::POLLIN, Duration::ZERO) != 0 {}
            }
            while !reading.is_finished() {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(target, libc::SIGUSR2) };
                thread::sleep(Duration::from_millis(5));
            }
            let (got, buffer) = reading.join().unwrap();
            match got {
                Ok(count) => (read, count, buffer),
                Err(error) => {
                    assert_eq!(error, Errno::INTERRUPTED);
                    (read, 0, buffer)
                }
            }
        });
        assert_eq!(count, if in_the_middle { 9_000 } else { 0 });
        assert!(buffer[..count] == octets[..count]);
        buffer.fill(0x5a);
        peer.respond(read.sink_stag, count as u64, true, &octets[count..]);
        assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
        let mut rest = vec![0; octets.len() - count];
        assert_eq!(end.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
        assert!(rest == octets[count..] && buffer.iter().all(|octet| *octet == 0x5a));
    }
}

#[test]
fn an_idle_end_keeps_no_block_for_adverts() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(4, 20_000);
    // As many as would use up the blocks of a process, were they kept.
    for round in 0..300 {
        peer.advertise(octets.len(), &octets[..INLINE]);
        let mut got = vec![0; octets.len()];
        thread::scope(|scope| {
            let reading = scope.spawn(|| end.recv(&mut got, libc::MSG_WAITALL));
            let mut reported = INLINE;
            while reported < octets.len() {
                match peer.came() {
                    Came::Read(read) => {
                        let at = (read.src_to - TO) as usize;
                        peer.answer(&read, &octets[at..at + read.size as usize], 20_000);
                    }
                    Came::Message(message) if message[0] == RD_COMPL => {
                        reported += number(&message, 16) as usize;
                    }
                    Came::Message(_) => {}
                }
            }
            assert_eq!(reading.join().unwrap(), Ok(octets.len()));
        });
        assert!(got == octets, "round {round}");
    }
    assert!(end.tcp.as_raw_fd() >= 0);
}

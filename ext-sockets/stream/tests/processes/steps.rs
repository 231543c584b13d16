//! One of two processes on a socket is killed, or stopped, at each system call of an exchange of
//! zero copy: before the call, and behind it.
//!
//! The other process goes on with the socket, or gets the error that a process died while octets
//! were moved. No octet is wrong, and nobody waits for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rddp_stream::{Errno, Format, Options, SdpOptions, Why};
use rddp_test_support::random_octets;

use crate::common::{self, End, initiator, pair, responder};
use crate::traced::Traced;
use crate::{FORMATS, alone};

/// The part of the watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    /// Receives octets by Data, or of plain FPDUs.
    Receives,
    /// Reads from an advert: `SrcAvail`, Read, Response, `RdmaRdCompl`.
    Reads,
    /// Is written to: `SinkAvail`, Write, `RdmaWrCompl`.
    IsWrittenTo,
    /// Has its memory read.
    Lends,
    /// Has nobody read its memory, which the stream takes over.
    Spills,
    /// Has its memory read, and meets an advert of the peer: takes its own back.
    Crosses,
    /// Writes into a `SinkAvail`.
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dies,
    Stops,
}

const SIZE: usize = 150_000;
/// Room for which a `SinkAvail` is made: a message of the longest kind fits.
const ROOM: usize = 70_000;
/// Octets of the survivor.
const MARK: &[u8] = b"of the survivor";
/// Ends a call that would hang.
const LONG: Duration = Duration::from_secs(30);

fn ends(exchange: Exchange, format: fn(Options) -> Options) -> (End, End) {
    let (a, b) = pair(&format(initiator()), &format(responder()));
    for end in [&a, &b] {
        end.state.set_send_timeout(Some(LONG));
        end.state.set_receive_timeout(Some(LONG));
    }
    if [Exchange::IsWrittenTo, Exchange::Writes].contains(&exchange) {
        // Two adverts in one call make the half Pipelined.
        let octets = vec![7; (1 << 20) + 100_000];
        a.state.set_threshold(0);
        // The `SinkAvail` is to be that of the exchange.
        b.state.set_sink_threshold(u64::MAX);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(a.send(&octets), Ok(octets.len())));
            let mut room = vec![0; octets.len()];
            assert_eq!(b.recv(&mut room, libc::MSG_WAITALL), Ok(octets.len()));
        });
        a.state.set_threshold(u64::MAX);
        b.state.set_sink_threshold(1);
    }
    if [Exchange::Reads, Exchange::Lends, Exchange::Spills, Exchange::Crosses].contains(&exchange) {
        a.state.set_threshold(0);
    }
    if exchange == Exchange::Crosses {
        b.state.set_threshold(0);
    }
    if exchange == Exchange::Spills {
        a.state.set_send_timeout(Some(Duration::from_millis(30)));
    }
    (a, b)
}

/// Does for an end what is to be done until it owes nothing, as its helper thread would.
fn settle(end: &End) {
    let until = Instant::now() + LONG;
    while end.state.ended().is_none() && (end.stream().has_obligation() || end.stream().owes()) {
        assert!(Instant::now() < until, "a hang");
        end.stream().meet_obligation();
        end.stream().step();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends, ends the direction, and goes on until the peer has everything.
fn send_and_end(end: &End, octets: &[u8]) -> Result<(), Errno> {
    let sent = end.send(octets).map(|count| assert_eq!(count, octets.len(), "a hang"));
    let ended = sent.and_then(|()| end.stream().shutdown(libc::SHUT_WR));
    settle(end);
    assert_ne!(ended, Err(Errno::WOULD_BLOCK), "a hang");
    ended
}

/// Reads all octets up to the end, or up to an error.
fn read_all(end: &End) -> (Vec<Vec<u8>>, Option<Errno>) {
    let mut parts = Vec::new();
    loop {
        match end.read(ROOM) {
            Ok(part) if part.is_empty() => return (parts, None),
            Ok(part) => parts.push(part),
            Err(error) => {
                assert_ne!(error, Errno::WOULD_BLOCK, "a hang");
                return (parts, Some(error));
            }
        }
    }
}

/// Returns whether the parts are octets of `all` in their order; `is_run`: with none missing
/// between them.
fn come_from(all: &[u8], parts: &[Vec<u8>], is_run: bool) -> bool {
    let mut at = 0;
    parts.iter().enumerate().all(|(number, part)| {
        let found = (at..=all.len().saturating_sub(part.len())).find(|at| all[*at..].starts_with(part));
        let fits = found.is_some_and(|found| number == 0 || !is_run || found == at);
        at = found.unwrap_or(at) + part.len();
        fits
    })
}

fn wait_until<T>(is_over: impl Fn() -> bool, thread: &ScopedJoinHandle<'_, T>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while !thread.is_finished() && !is_over() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished()
}

/// Takes a child to this step, and then to its fate. `None`: it has ended before.
fn meets_fate(child: &mut Traced, steps: usize) -> Option<bool> {
    (0..steps).all(|_| child.step()).then(|| child.sleeps())
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    /// The child had fewer steps.
    ToTheEnd,
    WentOn,
    /// The connection has ended.
    Ended,
}

/// Has the child stop after `steps`, and the other process read on meanwhile.
///
/// A child that holds a lock, so for the time of a few system calls, holds up the others; it goes
/// on then. One that sleeps must not.
fn goes_on_beside<T>(child: &Traced, sleeps: bool, other: &ScopedJoinHandle<'_, T>) {
    let limit = if sleeps { LONG } else { Duration::from_millis(20) };
    let finished = wait_until(|| false, other, limit);
    assert!(finished || !sleeps, "held up by a process that sleeps");
    child.go_on();
}

/// Watches a child that receives.
fn sink_meets(exchange: Exchange, fate: Fate, format: fn(Options) -> Options, steps: usize) -> Option<Ran> {
    let (a, b) = ends(exchange, format);
    let data = random_octets(1, SIZE);
    let over = AtomicBool::new(false);
    let mut child = Traced::fork(|| {
        // A part of an FPDU is among them.
        for room in [ROOM, 1000, 20_000] {
            let mut room = vec![0; room];
            if b.recv(&mut room, 0).is_err() {
                break;
            }
        }
    })?;
    Some(thread::scope(|scope| {
        let peer = scope.spawn(|| {
            while exchange == Exchange::IsWrittenTo
                && !over.load(Ordering::Relaxed)
                && common::kernel_poll(&a.tcp, libc::POLLIN, Duration::ZERO) == 0
            {
                thread::sleep(Duration::from_micros(200));
            }
            send_and_end(&a, &data)
        });
        let sleeps = meets_fate(&mut child, steps);
        over.store(true, Ordering::Relaxed);
        let Some(sleeps) = sleeps else {
            let (parts, error) = read_all(&b);
            assert!(error.is_none() && come_from(&data, &parts, true));
            peer.join().unwrap().unwrap();
            return Ran::ToTheEnd;
        };
        let (parts, error) = match fate {
            Fate::Dies => {
                child.kill();
                read_all(&b)
            }
            Fate::Stops => {
                let other = scope.spawn(|| read_all(&b));
                goes_on_beside(&child, sleeps, &other);
                child.join();
                other.join().unwrap()
            }
        };
        assert!(come_from(&data, &parts, fate == Fate::Dies), "wrong octets");
        let sent = peer.join().unwrap();
        let Some(error) = error else {
            assert!(sent.is_ok() && a.state.ended().is_none() && b.state.ended().is_none());
            // All that the child did not take, which may have gone on.
            let last = parts.last().map_or(&[][..], |part| part);
            assert!(data.ends_with(last) || fate == Fate::Stops);
            return Ran::WentOn;
        };
        let why = b.state.ended().map(|end| end.why);
        assert_eq!((error, why, fate), (Errno::ABORTED, Some(Why::Damaged), Fate::Dies));
        Ran::Ended
    }))
}

/// Watches a child that sends.
fn source_meets(exchange: Exchange, fate: Fate, format: fn(Options) -> Options, steps: usize) -> Option<Ran> {
    let (a, b) = ends(exchange, format);
    let (data, back) = (random_octets(1, SIZE), random_octets(2, SIZE / 2));
    let over = AtomicBool::new(false);
    let mut child = Traced::fork(|| {
        if exchange == Exchange::Writes {
            // Until there is a `SinkAvail`.
            thread::sleep(Duration::from_millis(3));
        }
        let _ = a.send(&data);
    })?;
    Some(thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let sent = b.send(&back);
            while exchange == Exchange::Spills && !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(200));
            }
            let got = read_all(&b);
            settle(&b);
            (sent, got)
        });
        let sleeps = meets_fate(&mut child, steps);
        let read_back = || {
            let mut got = vec![0; back.len()];
            let count = a.recv(&mut got, libc::MSG_WAITALL);
            assert_ne!(count, Err(Errno::WOULD_BLOCK), "a hang");
            count.map(|count| got.truncate(count)).map(|()| got)
        };
        let mut got_back = Err(Errno::WOULD_BLOCK);
        match (fate, sleeps) {
            (Fate::Dies, Some(_)) => child.kill(),
            (Fate::Stops, Some(sleeps)) => {
                let other = scope.spawn(read_back);
                goes_on_beside(&child, sleeps, &other);
                over.store(true, Ordering::Relaxed);
                child.join();
                got_back = other.join().unwrap();
            }
            (_, None) => {}
        }
        over.store(true, Ordering::Relaxed);
        a.state.set_send_timeout(Some(LONG));
        let reads = (got_back == Err(Errno::WOULD_BLOCK)).then(|| scope.spawn(read_back));
        let sent = send_and_end(&a, MARK);
        got_back = reads.map_or(got_back, |reads| reads.join().unwrap());
        // The peer may wait for an answer, which an end that makes no call does not give.
        while !peer.is_finished() {
            a.stream().step();
            thread::sleep(Duration::from_millis(1));
        }
        let (peer_sent, (parts, error)) = peer.join().unwrap();
        let got = parts.concat();
        let (from_child, from_us) = got.split_at(got.len().min(got.len().saturating_sub(MARK.len())));
        if error.is_none() && sent.is_ok() && a.state.ended().is_none() {
            assert!(from_us == MARK && data.starts_with(from_child), "wrong octets");
            assert!(got_back.as_ref() == Ok(&back) && peer_sent.is_ok());
            assert!(from_child == data || fate == Fate::Dies && sleeps.is_some());
            return if sleeps.is_none() { Ran::ToTheEnd } else { Ran::WentOn };
        }
        assert!(data.starts_with(&got) || data.starts_with(from_child) && from_us == MARK, "wrong octets");
        assert_eq!((fate, sleeps.is_some()), (Fate::Dies, true), "{error:?} {sent:?} {:?}", a.state.ended());
        Ran::Ended
    }))
}

fn each_step(exchange: Exchange, format: fn(Options) -> Options) {
    let is_sink = [Exchange::Receives, Exchange::Reads, Exchange::IsWrittenTo].contains(&exchange);
    let meets = if is_sink { sink_meets } else { source_meets };
    for fate in [Fate::Dies, Fate::Stops] {
        let (mut steps, mut went_on) = (0, 0);
        loop {
            steps += 1;
            eprintln!("{exchange:?} {fate:?} step {steps}");
            match meets(exchange, fate, format, steps) {
                None => return eprintln!("not checked: no child can be traced here"),
                Some(Ran::ToTheEnd) => break,
                Some(Ran::WentOn) => went_on += 1,
                Some(Ran::Ended) => {}
            }
            assert!(steps < 1000);
        }
        assert!(went_on > 2, "{steps} steps, {went_on} went on");
    }
}

fn sdp(options: Options) -> Options {
    Options { format: Format::Sdp(SdpOptions::DEFAULT), ..options }
}

#[test]
fn a_receiver_at_each_step() {
    let _alone = alone();
    FORMATS.into_iter().for_each(|format| each_step(Exchange::Receives, format));
}

#[test]
fn a_reader_of_an_advert_at_each_step() {
    let _alone = alone();
    each_step(Exchange::Reads, sdp);
}

#[test]
fn a_receiver_that_is_written_to_at_each_step() {
    let _alone = alone();
    each_step(Exchange::IsWrittenTo, sdp);
}

#[test]
fn a_sender_that_lends_at_each_step() {
    let _alone = alone();
    each_step(Exchange::Lends, sdp);
}

#[test]
fn a_sender_that_spills_at_each_step() {
    let _alone = alone();
    each_step(Exchange::Spills, sdp);
}

#[test]
fn a_sender_that_takes_its_advert_back_at_each_step() {
    let _alone = alone();
    each_step(Exchange::Crosses, sdp);
}

#[test]
fn a_sender_that_writes_at_each_step() {
    let _alone = alone();
    each_step(Exchange::Writes, sdp);
}

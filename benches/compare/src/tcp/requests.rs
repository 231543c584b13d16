//! Streams that carry one message there and one back, and are then closed.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rddp_load::stream::{LAST, MORE, receive_all, send_all};

use super::{Lane, mode};
use crate::Outcome;
use crate::spec::{Latency, Spec};

/// Asks for `time`, with an own stream for each message; the last one says so.
pub(super) fn ask(
    spec: &Spec,
    addr: SocketAddr,
    (message, answer): (&mut [u8], &mut [u8]),
    time: Duration,
) -> Outcome<Option<Latency>> {
    let (mut times, mut begun) = (Vec::new(), Instant::now());
    let end = begun + time;
    while begun < end {
        ask_one(spec, addr, message, answer)?;
        let now = Instant::now();
        times.push((now - begun).as_nanos() as u64);
        begun = now;
    }
    mark(message, LAST);
    ask_one(spec, addr, message, answer)?;
    mark(message, MORE);
    Ok(Latency::of(times))
}

fn ask_one(spec: &Spec, addr: SocketAddr, message: &[u8], answer: &mut [u8]) -> Outcome<()> {
    let mut lane = one(spec, mode::connect(spec, addr)?)?;
    send_all(&mut lane, 0, message, 0)?;
    receive_all(&mut lane, 0, answer)
}

/// Answers one message of each stream until the last one, and waits for the end of each stream.
pub(super) fn answer(spec: &Spec, listener: &TcpListener, room: &mut [u8], answer: &[u8]) -> Outcome<()> {
    let message = room.get_mut(..answer.len()).ok_or("a message is too long for a request")?;
    loop {
        let mut lane = one(spec, listener.accept()?.0)?;
        receive_all(&mut lane, 0, message)?;
        send_all(&mut lane, 0, answer, 0)?;
        if (&lane.list[0]).read(&mut [0])? > 0 {
            return Err("a stream has more than one message".into());
        }
        if message.last() == Some(&LAST) {
            return Ok(());
        }
    }
}

fn one(spec: &Spec, stream: TcpStream) -> Outcome<Lane> {
    Lane::new(&spec.of_thread(), vec![stream])
}

fn mark(message: &mut [u8], mark: u8) {
    if let Some(last) = message.last_mut() {
        *last = mark;
    }
}

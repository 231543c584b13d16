//! Queue pairs over plain TCP and UDP, and plain UDP sockets: messages that arrive whole, or not at
//! all.
//!
//! The ends share one loop over a [`Link`]. A slice ends beside the data: the active end tells over
//! a TCP connection of its own how many messages it has sent, and the passive end, once it has all
//! of them or no more come, how many have arrived.

mod active;
mod passive;
mod qps;
mod sockets;

pub(super) use self::active::Active;
pub(super) use self::passive::Passive;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rddp_command::addr::plain;
use rddp_command::failure::Failure;

use self::qps::Qps;
use self::sockets::Sockets;
use super::control::{Channel, Phase, Setup};
use super::op::Op;
use super::spin::{Spin, Wish};

/// Time limit for the other end's ports.
const PATIENCE: Duration = Duration::from_secs(15);

/// One end of all connections, and of the one beside them.
trait Link: Send {
    /// Prepares for a slice.
    fn begin(&mut self, phase: Phase);

    /// Sends on each connection as many messages as one call does, where that does not have to
    /// wait, altogether at most `most`; returns their number.
    fn send(&mut self, most: u64) -> Result<u64, Failure>;

    /// Sends one message on the first connection; a datagram without room is lost.
    fn send_one(&mut self) -> Result<(), Failure>;

    /// Takes messages, and notes what has been sent. Returns whether there was anything.
    fn poll(&mut self) -> Result<bool, Failure>;

    /// Returns the number of messages that have arrived so far.
    fn arrived(&self) -> u64;

    /// Returns whether all messages have left.
    fn has_sent(&self) -> bool;

    /// Tells the other end a number, beside the messages.
    fn tell(&mut self, number: u64) -> Result<(), Failure>;

    /// Takes the number that the other end has told.
    fn told(&mut self) -> Result<Option<u64>, Failure>;

    /// Spins, or sleeps until something comes or the time has passed.
    fn idle(&mut self, most: Duration) -> Result<(), Failure>;

    fn spin(&mut self) -> &mut Spin;

    fn close(&self);
}

/// Makes one end of connections over TCP, of which the last is the one beside the messages.
fn link(setup: &Setup, mut list: Vec<TcpStream>, wish: Wish) -> Result<Box<dyn Link>, Failure> {
    let beside = list.pop().ok_or_else(|| Failure::usage("no connections"))?;
    Ok(match setup.op {
        Op::Udp => Box::new(Sockets::new(setup, beside, wish)?),
        _ => Box::new(Qps::new(setup, list, beside, wish)?),
    })
}

/// Tells the other end the ports of datagrams; returns the connection, and its addresses.
fn exchange_ports(beside: TcpStream, ports: &[u16]) -> Result<(TcpStream, Vec<SocketAddr>), Failure> {
    let mut peer = plain(beside.peer_addr().map_err(|error| lost(&error))?);
    let mut channel = Channel::new(beside)?;
    channel.send(&ports)?;
    let theirs: Vec<u16> = channel.receive(PATIENCE)?;
    if theirs.len() != ports.len() {
        return Err(Failure::peer("the other end has another number of UDP ports"));
    }
    let addr = |port| {
        peer.set_port(port);
        peer
    };
    Ok((channel.into_stream(), theirs.into_iter().map(addr).collect()))
}

/// Returns the address for datagrams beside a connection: this end's, any port.
fn local(beside: &TcpStream) -> Result<SocketAddr, Failure> {
    let mut addr = plain(beside.local_addr().map_err(|error| lost(&error))?);
    addr.set_port(0);
    Ok(addr)
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::peer(format!("a data connection: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use rddp_load::Extent;

    use super::*;

    /// Messages and numbers on their way to the other end.
    #[derive(Default)]
    struct Wire {
        messages: u64,
        numbers: VecDeque<u64>,
    }

    /// A link that loses every third message.
    struct Lossy {
        to: Arc<Mutex<Wire>>,
        from: Arc<Mutex<Wire>>,
        sent: u64,
        arrived: u64,
        spin: Spin,
    }

    impl Link for Lossy {
        fn begin(&mut self, _: Phase) {}

        fn send(&mut self, most: u64) -> Result<u64, Failure> {
            (0..most.min(10)).try_for_each(|_| self.send_one())?;
            Ok(most.min(10))
        }

        fn send_one(&mut self) -> Result<(), Failure> {
            self.sent += 1;
            self.to.lock().unwrap().messages += u64::from(!self.sent.is_multiple_of(3));
            Ok(())
        }

        fn poll(&mut self) -> Result<bool, Failure> {
            let come = std::mem::take(&mut self.from.lock().unwrap().messages);
            self.arrived += come;
            Ok(come > 0)
        }

        fn arrived(&self) -> u64 {
            self.arrived
        }

        fn has_sent(&self) -> bool {
            true
        }

        fn tell(&mut self, number: u64) -> Result<(), Failure> {
            self.to.lock().unwrap().numbers.push_back(number);
            Ok(())
        }

        fn told(&mut self) -> Result<Option<u64>, Failure> {
            Ok(self.from.lock().unwrap().numbers.pop_front())
        }

        fn idle(&mut self, _: Duration) -> Result<(), Failure> {
            std::thread::yield_now();
            Ok(())
        }

        fn spin(&mut self) -> &mut Spin {
            &mut self.spin
        }

        fn close(&self) {}
    }

    #[test]
    fn datagrams_that_are_lost_are_told_and_those_that_arrive_count() {
        let wires = [(); 2].map(|()| Arc::<Mutex<Wire>>::default());
        let lossy = |to: usize| -> Box<dyn Link> {
            let (to, from) = (wires[to].clone(), wires[1 - to].clone());
            Box::new(Lossy { to, from, sent: 0, arrived: 0, spin: Spin::new(Wish::Own) })
        };
        let (mut active, mut passive) = (Active::over(lossy(0), true), Passive::over(lossy(1), true));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                passive.serve(Phase::Bandwidth, None).unwrap();
                passive.serve(Phase::Latency, None).unwrap();
            });
            let time = Duration::from_secs(60);
            let sent = active.bandwidth(Extent { time, messages: 300 }).unwrap();
            assert_eq!((sent.messages, sent.lost), (200, 100));
            // Of four messages one is lost, and of their answers another.
            let mut latencies = crate::perf::measure::Latencies::new().unwrap();
            let sent = active.latency(Extent { time, messages: 4 }, &mut latencies).unwrap();
            assert_eq!(sent.lost, 2);
        });
    }
}

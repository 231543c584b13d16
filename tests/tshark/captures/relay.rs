//! A relay between the two ends that records what each of them sent.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// The sender of octets: the initiator of the connection or the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Initiator,
    Responder,
}

/// The octets of both ends, in the order in which they passed.
pub type Talk = Vec<(Side, Vec<u8>)>;

pub struct Relay {
    pub addr: SocketAddr,
    talk: Arc<Mutex<Talk>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Relay {
    /// Takes one connection and passes it on to `to`.
    pub fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let talk = Arc::new(Mutex::new(Talk::new()));
        let heard = talk.clone();
        let thread = thread::spawn(move || {
            let (initiator, _) = listener.accept()?;
            let responder = TcpStream::connect(to)?;
            initiator.set_nodelay(true)?;
            responder.set_nodelay(true)?;
            let (from, into, talk) = (responder.try_clone()?, initiator.try_clone()?, heard.clone());
            let back = thread::spawn(move || pass(from, &into, Side::Responder, &talk));
            pass(initiator, &responder, Side::Initiator, &heard);
            let _ = back.join();
            Ok(())
        });
        Ok(Relay { addr, talk, thread })
    }

    /// Returns what was sent, once both ends have closed.
    pub fn finish(self) -> io::Result<Talk> {
        self.thread.join().map_err(|_| io::Error::other("the relay panicked"))??;
        let mut talk = self.talk.lock().map_err(|_| io::Error::other("the relay panicked"))?;
        Ok(std::mem::take(&mut talk))
    }
}

fn pass(mut from: TcpStream, mut into: &TcpStream, side: Side, talk: &Mutex<Talk>) {
    let mut octets = vec![0; 1 << 16];
    // An end that resets is an end, too.
    while let Ok(count @ 1..) = from.read(&mut octets) {
        if let Ok(mut talk) = talk.lock() {
            talk.push((side, octets[..count].to_vec()));
        }
        if into.write_all(&octets[..count]).is_err() {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Write);
}

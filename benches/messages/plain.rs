//! Plain sockets, both ends in one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

enum Sockets {
    Tcp { near: TcpStream, far: TcpStream },
    Udp { near: UdpSocket, far: UdpSocket, to: SocketAddr },
}

/// Two sockets, and the message that goes from one to the other.
pub(crate) struct Plain {
    sockets: Sockets,
    message: Vec<u8>,
    room: Vec<u8>,
}

impl Plain {
    pub(crate) fn new(is_udp: bool, len: usize) -> Self {
        let sockets = if is_udp { udp() } else { tcp() }.expect("sockets of loopback");
        Plain { sockets, message: vec![7; len], room: vec![0; len] }
    }

    /// Sends so many messages, a call for each, and then receives them.
    pub(crate) fn exchange(&mut self, count: usize) {
        match &mut self.sockets {
            Sockets::Udp { near, far, to } => {
                for _ in 0..count {
                    near.send_to(&self.message, *to).expect("room for some datagrams");
                }
                for _ in 0..count {
                    far.recv(&mut self.room).expect("what was sent");
                }
            }
            Sockets::Tcp { near, far } => {
                let (mut received, all) = (0, count * self.message.len());
                for _ in 0..count {
                    let mut sent = 0;
                    while sent < self.message.len() {
                        sent += moved(near.write(&self.message[sent..]));
                        // A long one is received meanwhile.
                        if sent < self.message.len() {
                            received += moved(far.read(&mut self.room));
                        }
                    }
                }
                while received < all {
                    let left = self.room.len() - received % self.room.len();
                    received += moved(far.read(&mut self.room[..left]));
                }
            }
        }
    }
}

fn udp() -> io::Result<Sockets> {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let to = far.local_addr()?;
    Ok(Sockets::Udp { near, far, to })
}

fn tcp() -> io::Result<Sockets> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for socket in [&near, &far] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    Ok(Sockets::Tcp { near, far })
}

/// Returns the octets that a call has moved.
fn moved(result: io::Result<usize>) -> usize {
    match result {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("a connection over loopback: {error}"),
    }
}

//! Messages over plain TCP, read into the memory where they are wanted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::{LISTEN, Times, stamp};
use crate::cell::now_ns;
use crate::spec::{Cell, Received};

pub(crate) fn receive(cell: &Cell) -> Received {
    let listener = TcpListener::bind(LISTEN).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let mut socket = listener.accept().unwrap().0;
    socket.set_nodelay(true).unwrap();
    let mut octets = vec![1; 8 << 20];
    // As MPA's startup does: the first window that fits is that of the first ACK.
    socket.read_exact(&mut [0]).unwrap();
    socket.write_all(&[1]).unwrap();
    let mut times = Times::begin();
    for place in (0..8 << 20).step_by(1 << 20).cycle() {
        let mut sent = [0; 8];
        socket.read_exact(&mut sent).unwrap();
        let sent = u64::from_ne_bytes(sent);
        if sent == 0 {
            break;
        }
        socket.read_exact(&mut octets[place..place + cell.message]).unwrap();
        times.note(sent);
        socket.write_all(&[1]).unwrap();
    }
    times.result()
}

pub(crate) fn send(cell: &Cell, addr: SocketAddr) {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.write_all(&[1]).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    let mut octets = vec![7; 8 + cell.message];
    let (began, mut sent) = (now_ns(), 0);
    loop {
        if sent >= cell.depth as u64 {
            socket.read_exact(&mut [0]).unwrap();
        }
        let time = stamp(cell, began, sent);
        octets[..8].copy_from_slice(&time.to_ne_bytes());
        if time == 0 {
            socket.write_all(&octets[..8]).unwrap();
            break;
        }
        socket.write_all(&octets).unwrap();
        sent += 1;
    }
    // The receiver's answers, so that the end is no reset.
    let _ = socket.read_to_end(&mut Vec::new());
}

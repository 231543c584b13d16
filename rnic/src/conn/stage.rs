//! Stages of a startup, and what leads from one to the next.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::epoll::EpollFlags;
use rddp_mpa::{Initiator, Negotiated, Request};

use super::port_mapper::Query;
use super::socket::TcpSocket;

#[derive(Debug)]
pub(super) enum Stage {
    /// The port mapper of the peer's host has been asked.
    Mapper {
        socket: TcpSocket,
        query: Query,
        initiator: Initiator,
    },
    /// Until TCP is connected.
    Tcp {
        socket: TcpSocket,
        initiator: Option<Initiator>,
    },
    /// The Request has been sent.
    Reply {
        socket: TcpSocket,
        initiator: Initiator,
        octets: Vec<u8>,
    },
    /// The peer's Request is arriving.
    Request {
        socket: TcpSocket,
        octets: Vec<u8>,
        total: usize,
    },
    /// The program is to answer it.
    Asked {
        socket: TcpSocket,
        request: Request,
    },
    /// It has. What comes of that is in the outcome.
    Answered,
    Over,
}

/// What a look at the socket leads to.
pub(super) enum Next {
    /// Another look.
    Again(Stage),
    /// Nothing before the socket is ready for this.
    Wait(Stage, EpollFlags),
    /// A connection.
    Done(Done),
}

pub(super) struct Done {
    pub(super) socket: TcpSocket,
    pub(super) negotiated: Negotiated,
    pub(super) private_data: Vec<u8>,
    pub(super) active: bool,
}

impl Stage {
    pub(super) fn socket(&self) -> Option<&TcpSocket> {
        match self {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Reply { socket, .. }
            | Stage::Request { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            Stage::Answered | Stage::Over => None,
        }
    }

    /// The descriptor that it waits for.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stage::Mapper { query, .. } => Some(query.as_fd()),
            other => other.socket().map(AsFd::as_fd),
        }
    }

    /// Nothing more is to be done, if something was: its socket.
    pub(super) fn end(&mut self) -> Option<TcpSocket> {
        match std::mem::replace(self, Stage::Over) {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Reply { socket, .. }
            | Stage::Request { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            over => {
                *self = over;
                None
            }
        }
    }
}

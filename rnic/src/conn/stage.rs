//! Stages of a startup, and what a step from one stage leads to.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::epoll::EpollFlags;

use super::port_mapper::Query;
use super::socket::DeviceSocket;
use crate::error::ConnectError;
use crate::wire::opening::{Asked, Opening, Terms};

/// A stage of a startup, with all that it needs: the socket, and what has arrived so far.
#[derive(Debug)]
pub(super) enum Stage {
    /// The port mapper of the peer's host has been asked.
    Mapper { socket: DeviceSocket, query: Query, opening: Opening },
    /// TCP is connecting.
    Tcp { socket: DeviceSocket, opening: Opening },
    /// The peer's host has refused TCP, and is tried again after a pause.
    Refused { socket: DeviceSocket, error: ConnectError },
    /// The two ends tell each other what they want.
    Open { socket: DeviceSocket, opening: Opening },
    /// The program is to answer what the peer has asked for.
    Asked { socket: DeviceSocket, opening: Opening, asked: Asked },
    /// The program has answered. The result follows in the outcome.
    Answered,
    /// The startup is over.
    Over,
}

/// The result of one step.
pub(super) enum Next {
    /// This stage is next, and may have something to do at once.
    Again(Stage),
    /// This stage waits until the socket is ready for these events.
    Wait(Stage, EpollFlags),
    /// Both ends agree: there is a connection.
    Done(Done),
}

/// A connection that a startup has led to.
pub(super) struct Done {
    pub(super) socket: DeviceSocket,
    pub(super) terms: Terms,
    pub(super) private_data: Vec<u8>,
    pub(super) active: bool,
}

impl Stage {
    /// Returns the TCP socket, unless the startup is out of the background thread's hands.
    pub(super) fn socket(&self) -> Option<&DeviceSocket> {
        match self {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Refused { socket, .. }
            | Stage::Open { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            Stage::Answered | Stage::Over => None,
        }
    }

    /// Returns the descriptor that the stage waits for, if it waits for one.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stage::Mapper { query, .. } => Some(query.as_fd()),
            Stage::Refused { .. } => None,
            other => other.socket().map(AsFd::as_fd),
        }
    }

    /// Ends the startup, unless it is out of the background thread's hands. Returns its socket.
    pub(super) fn end(&mut self) -> Option<DeviceSocket> {
        match std::mem::replace(self, Stage::Over) {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Refused { socket, .. }
            | Stage::Open { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            over => {
                *self = over;
                None
            }
        }
    }
}

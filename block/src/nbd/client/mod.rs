//! The client's end of NBD: handshake, and the replies to its requests.
//!
//! Nothing that a server says is taken for granted: every length is checked before octets are read
//! for it, and every reply against its request.

pub mod opening;
mod pieces;
pub mod replies;

#[cfg(test)]
mod both_ends;

//! The two bindings of SDP against each other: over the software RNIC, and in-call over a plain TCP
//! socket.

mod advertising;
mod ends;
mod exchange;
mod finish;
mod operations;

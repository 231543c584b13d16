//! Connections from their beginning to the QP, and after it: TCP, the startup, lingering. What the
//! two ends say in a startup is the affair of the wire (see [`opening`](crate::wire::opening)).
//!
//! | file | subject |
//! |---|---|
//! | `begin` | a program's calls that begin a startup on a TCP connection of its own |
//! | `connect` | a program's calls that connect to an address; the fall-back to revision 1 |
//! | `answer` | a program's answer to a Request that came on a TCP connection of its own |
//! | `startup` | one startup of a QP, from its beginning to its end |
//! | `stage`, `steps` | the stages of a startup, and what is done in each |
//! | `port_mapper` | the query to a port mapper, by an initiator or for `rddp doctor` |
//! | `listen`, `request` | listeners, and the Requests that they hand to the program |
//! | `half_open`, `peer_count` | connections of listeners whose startup is not over |
//! | `linger` | connections whose QP the program has dropped, and rejected ones |
//! | `mss` | the segment size that TCP is asked for |
//! | `socket` | TCP sockets |

pub(crate) mod answer;
mod begin;
mod bind;
pub(crate) mod connect;
pub(crate) mod half_open;
pub(crate) mod linger;
pub(crate) mod listen;
mod mss;
pub(crate) mod peer_count;
pub(crate) mod port_mapper;
pub(crate) mod request;
pub(crate) mod socket;
mod stage;
pub(crate) mod startup;
mod steps;

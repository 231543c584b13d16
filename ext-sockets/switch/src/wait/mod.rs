//! `poll`, `select` and `epoll` of sockets that are ours, whatever their kind.
//!
//! Readiness comes from the kernel's own socket. A wait asks the kernel for the events that the
//! socket is [interested](crate::kinds::Readiness::interest) in, and the kernel's answer goes
//! through [`revents`](crate::kinds::Readiness::revents). When none of it concerns the program, the
//! wait goes on with the time that is left. A call that concerns no socket of ours goes to the C
//! library with the arguments it came with ([`Errno::PLAIN`](rddp_stream::Errno::PLAIN)).
//!
//! Where octets for another call stay in front, a level-triggered wait would never sleep: a kind
//! [says so](crate::kinds::Readiness::waits_by_edges), and the wait is by edges, on a private set
//! in the socket's place; an entry of the program's own epoll set gets EPOLLET until its condition
//! holds again.
//!
//! | file | what |
//! |---|---|
//! | `watched.rs` | one descriptor of ours in a wait |
//! | `edges.rs` | the private set of a wait, for sockets with octets that are somebody else's |
//! | `one.rs` | one descriptor of ours in a `poll` or `select` |
//! | `poll.rs` | `poll`, `ppoll` |
//! | `select.rs` | `select`, `pselect` |
//! | `epoll/` | `epoll_ctl`, and `epoll_wait` and its variants |

mod edges;
#[cfg(test)]
mod edges_tests;
mod epoll;
mod one;
mod poll;
mod select;
mod watched;

pub use edges::{forget_edges, forget_inherited_sets};
pub(crate) use epoll::Pool;
pub use epoll::{
    Elsewhere, Watches, changed, closing, control, duplicated, forking, given_late, gone, has_entries,
    is_concerned, kind_changed, replace, tell_again, wait, watches, withdraw,
};
pub use poll::poll;
pub use select::{Bits, select};

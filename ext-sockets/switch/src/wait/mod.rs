//! `poll`, `select` and `epoll` of sockets that are ours, whatever their kind.
//!
//! The kernel's own socket stays the truth of readiness. A wait asks the kernel for what the socket
//! is [interested](crate::kinds::Readiness::interest) in, and what the kernel answers goes through
//! [`revents`](crate::kinds::Readiness::revents); when nothing of it is the program's business the
//! wait goes on with the time that is left. A call that concerns no socket of ours goes on to the C
//! library as it came ([`Errno::PLAIN`](rddp_stream::Errno::PLAIN)).
//!
//! | file | what |
//! |---|---|
//! | `watched.rs` | one descriptor of ours in a wait |
//! | `poll.rs` | `poll`, `ppoll` |
//! | `select.rs` | `select`, `pselect` |
//! | `epoll/` | `epoll_ctl`, `epoll_wait` and its like |

mod epoll;
mod poll;
mod select;
mod watched;

pub(crate) use epoll::Pool;
pub use epoll::{
    Elsewhere, Watches, changed, closing, control, duplicated, forking, given_late, gone, has_entries,
    is_concerned, kind_changed, tell_again, wait, watches, withdraw,
};
pub use poll::poll;
pub use select::{Bits, select};

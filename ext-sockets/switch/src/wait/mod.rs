//! `poll`, `select` and `epoll` of framed sockets.
//!
//! The kernel's own socket stays the truth of readiness. A wait asks the kernel for what the stream is
//! [interested](crate::kinds::framed::Framed::interest) in, and what the kernel answers goes through [`Framed::revents`](crate::kinds::framed::Framed::revents); when nothing of it is the
//! program's business the wait goes on with the time that is left. A call that concerns no framed socket goes on to the
//! C library as it came ([`Errno::PLAIN`](rddp_stream::Errno::PLAIN)).
//!
//! | file | what |
//! |---|---|
//! | `watched.rs` | one framed descriptor of a wait |
//! | `poll.rs` | `poll`, `ppoll` |
//! | `select.rs` | `select`, `pselect` |
//! | `epoll/` | `epoll_ctl`, `epoll_wait` and its like |

mod epoll;
mod poll;
mod select;
mod watched;

pub(crate) use epoll::Pool;
pub use epoll::{
    Watches, changed, closing, control, duplicated, forking, framed_now, given_late, gone, has_entries,
    is_concerned, tell_again, wait, watches, withdraw,
};
pub use poll::poll;
pub use select::{Bits, select};

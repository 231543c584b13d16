//! Readiness of sockets, and time: the only module that has epoll sets, timers and threads.
//!
//! | file | subject |
//! |---|---|
//! | `driver` | the background thread: its sockets, its timers, and what it calls |
//! | `turns` | what the thread does in each turn |
//! | `readers` | threads that read files |
//! | `thread` | how a thread of the library begins |
//! | `lease` | which sockets the thread leaves to the program |
//! | `ready_set` | an epoll set for the program's own threads, where sockets are many |
//! | `sleep` | sleeping on a few sockets without an epoll set |
//! | `bell` | waking all threads that sleep on a queue |
//! | `alarm` | the descriptor by which a thread is woken |
//! | `notify` | a descriptor that wakes |
//! | `counter` | a descriptor that shows the events of a queue to a program |

pub(crate) mod alarm;
pub(crate) mod bell;
pub(crate) mod counter;
pub(crate) mod driver;
pub(crate) mod lease;
pub(crate) mod notify;
pub(crate) mod readers;
pub(crate) mod ready_set;
pub(crate) mod sleep;
mod thread;
mod turns;

//! The only module that owns TCP sockets' readiness and time: epoll sets, wake-ups, the background thread.

pub(crate) mod bell;
pub(crate) mod driver;
pub(crate) mod lease;
pub(crate) mod notify;
pub(crate) mod ready_set;
pub(crate) mod sleep;
mod turns;

//! Errors that the socket has noted: ICMP, and datagrams longer than the path's MTU.

use std::io;
use std::time::{Duration, Instant};

use rddp_rdma::AsyncEventKind;
use rddp_stat::Counter;

use super::Datagrams;
use crate::mem::{Notice, take_notice};
use crate::queues::context::Context;
use crate::wire::Watch;

/// Notices that are taken at a time.
const MOST: usize = 64;

/// The events of [`PERIOD`]: whoever sends lies gets no more of this program's time.
const EVENTS: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);

/// A limit on the rate of events.
#[derive(Debug, Default)]
pub(super) struct Limit {
    begun: Option<Instant>,
    events: u32,
}

impl Limit {
    /// Returns whether there may be an event now, and counts it.
    fn permits(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= PERIOD) {
            (self.begun, self.events) = (Some(now), 0);
        }
        self.events += 1;
        self.events <= EVENTS
    }
}

/// Returns whether an error of a call only tells of a datagram that was sent earlier, or may do so.
pub(super) fn is_news(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::EOPNOTSUPP
                | libc::EACCES
        )
    )
}

/// Returns whether an error says that the socket is no good any more.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK | libc::ENOTCONN))
}

impl Datagrams {
    /// Takes what the socket has noted of datagrams that were sent.
    #[cold]
    pub(super) fn take_notices(&mut self, watch: &Watch, cx: &Context<'_>) {
        for _ in 0..MOST {
            let Ok(notice) = take_notice(watch.fd()) else { return };
            self.note(cx, notice);
        }
    }

    fn note(&mut self, cx: &Context<'_>, Notice { to, errno, from_network }: Notice) {
        tracing::debug!(qp = cx.attrs.num.0, ?to, errno, from_network, "a datagram was not delivered");
        if errno == libc::EMSGSIZE {
            return cx.tally.add(Counter::TooLongForPath, 1);
        }
        if !from_network {
            return;
        }
        cx.tally.add(Counter::Unreachable, 1);
        if let Some(to) = to
            && self.events.permits(Instant::now())
        {
            cx.attrs.report(AsyncEventKind::Unreachable(to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_limit_that_begins_anew() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        assert_eq!((0..100).filter(|_| limit.permits(now)).count(), EVENTS as usize);
        assert_eq!((0..100).filter(|_| limit.permits(now + PERIOD)).count(), EVENTS as usize);
    }
}

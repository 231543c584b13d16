//! A bell by which other threads end the wait of the one that serves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rddp_rnic::CompletionQueue;

/// The bell, and the queue on which the thread waits.
#[derive(Clone)]
pub(super) struct Bell {
    cq: CompletionQueue,
    rung: Arc<AtomicBool>,
}

impl Bell {
    pub(super) fn new(cq: &CompletionQueue) -> Self {
        Bell { cq: cq.clone(), rung: Arc::default() }
    }

    /// Has the thread look at what was left for it, which is left before.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.cq.wake();
    }

    /// Waits for a completion or the bell, or for so long.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<()> {
        self.cq.wait_or(Some(timeout), || self.rung.load(Ordering::SeqCst))?;
        self.rung.store(false, Ordering::SeqCst);
        Ok(())
    }
}

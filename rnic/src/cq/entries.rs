//! Completions that wait in a queue until the program polls for them.

use std::collections::VecDeque;
use std::sync::Arc;

use rddp_rdma::Completion;

use crate::srq::SrqInner;

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) entries: VecDeque<Entry>,
    pub(super) armed: Option<Armed>,
}

/// A completion, and the shared receive queue that has its receive back once it has been [taken](Self::take), or can no longer be.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) completion: Completion,
    pub(super) srq: Option<Arc<SrqInner>>,
}

impl Entry {
    pub(super) fn take(self) -> Completion {
        if let Some(srq) = self.srq {
            srq.release(self.completion.qp);
        }
        self.completion
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Any,
    Solicited,
}

//! Jobs of a disk that wait for its threads.
//!
//! A thread takes a part of them by one call, and begins one after another. Those that it has not
//! begun can be taken back, whatever becomes of the one at which it is.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::disk::Job;

/// The jobs, which a disk shares with its threads.
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Parts that no thread has.
    parts: VecDeque<VecDeque<Job>>,
    /// Jobs that each thread has and has not begun.
    hands: Vec<VecDeque<Job>>,
    is_closed: bool,
}

impl Pool {
    pub(super) fn new(threads: usize) -> Self {
        let hands = (0..threads).map(|_| VecDeque::new()).collect();
        Pool { state: Mutex::new(State { hands, ..State::default() }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands jobs to the threads, to each a part of them.
    pub(super) fn add(&self, jobs: &mut VecDeque<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.state();
        let each = jobs.len().div_ceil(state.hands.len());
        while !jobs.is_empty() {
            state.parts.push_back(jobs.drain(..each.min(jobs.len())).collect());
            self.changed.notify_one();
        }
    }

    /// Waits until there is a part for a thread that has nothing; returns `false` once there will
    /// be none.
    pub(super) fn wait(&self, thread: usize) -> bool {
        let waits = |state: &mut State| state.parts.is_empty() && !state.is_closed;
        let waited = self.changed.wait_while(self.state(), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let part = state.parts.pop_front();
        part.map(|part| state.hands[thread] = part).is_some()
    }

    /// Returns the next job of a thread's part.
    pub(super) fn next(&self, thread: usize) -> Option<Job> {
        self.state().hands[thread].pop_front()
    }

    /// Takes back the jobs of an owner that no thread has begun.
    pub(super) fn withdraw(&self, owner: u32) -> Vec<Job> {
        let state = &mut *self.state();
        let mut gone = Vec::new();
        for jobs in state.parts.iter_mut().chain(&mut state.hands) {
            let (of_owner, others): (Vec<_>, _) = jobs.drain(..).partition(|job| job.owner == owner);
            *jobs = others.into();
            gone.extend(of_owner);
        }
        state.parts.retain(|part| !part.is_empty());
        gone
    }

    /// Ends the threads behind the last job.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}

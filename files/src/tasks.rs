//! Transfers as tasks: one thread drives many of them, and reads all their connections.
//!
//! A transfer is a future that waits only here: for the next completion of its QP, for a time, or
//! for its turn. So it reads like the code of a thread of its own, and costs none. What a disk or a
//! long computation holds up is handed to a thread for as long ([`Hub::aside`]), or cut into pieces
//! between which others have their turn ([`Hub::breathe`]).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rddp_command::endpoint::{self, looks};
use rddp_command::failure::Failure;
use rddp_command::signals::CHECK_INTERVAL;
use rddp_rnic::{Completion, CompletionQueue, QpNum, Rnic};

/// Completions that one connection can have in the queue: of its receives, and of its requests when
/// it ends.
pub(super) const PER_CONNECTION: usize = 256;

/// Completions that are taken before the tasks get their turn.
const AT_ONCE: usize = 64;

/// Time that a task may take before others have their turn.
const TURN: Duration = Duration::from_millis(2);

/// The completion queue of one thread's tasks.
pub(super) struct Hub {
    pub(super) rnic: Rnic,
    pub(super) cq: CompletionQueue,
    arrived: RefCell<HashMap<QpNum, VecDeque<Completion>>>,
    /// The wish of the task that is being polled.
    wish: Cell<Wish>,
    looked: Cell<Instant>,
    woken: Arc<Woken>,
}

/// The connections for whose tasks threads have rung, since tasks had their turn.
#[derive(Default)]
struct Woken {
    list: Mutex<Vec<QpNum>>,
    /// The list has something.
    is_some: AtomicBool,
}

impl Woken {
    fn take(&self) -> Vec<QpNum> {
        self.is_some.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A bell by which a thread ends the wait of a connection's task ([`Hub::stirred`]).
pub(super) struct Alarm {
    qp: QpNum,
    woken: Arc<Woken>,
    cq: CompletionQueue,
}

impl Alarm {
    pub(super) fn ring(&self) {
        self.woken.list.lock().unwrap_or_else(PoisonError::into_inner).push(self.qp);
        self.woken.is_some.store(true, Ordering::SeqCst);
        self.cq.wake();
    }
}

/// The event that a task waits for: a completion of a QP, and a time at the latest.
#[derive(Clone, Copy)]
struct Wish {
    qp: Option<QpNum>,
    until: Instant,
}

impl Hub {
    pub(super) fn new(rnic: &Rnic) -> Result<Rc<Self>, Failure> {
        Ok(Self::on(rnic, rnic.create_cq(PER_CONNECTION)?))
    }

    pub(super) fn on(rnic: &Rnic, cq: CompletionQueue) -> Rc<Self> {
        let now = Instant::now();
        let wish = Cell::new(Wish { qp: None, until: now });
        let (rnic, arrived) = (rnic.clone(), RefCell::default());
        Rc::new(Hub { rnic, cq, arrived, wish, looked: Cell::new(now), woken: Arc::default() })
    }

    /// Makes room for the completions of one more connection. What connections that have left had
    /// in the queue takes none of it.
    pub(super) fn join(&self, qp: QpNum) -> Result<(), Failure> {
        while self.collect() == AT_ONCE {}
        let mut arrived = self.arrived.borrow_mut();
        let needed = (arrived.len() + 1) * PER_CONNECTION;
        if needed > self.cq.capacity() {
            self.cq.resize(needed)?;
        }
        arrived.insert(qp, VecDeque::new());
        Ok(())
    }

    /// Forgets a connection, and what it has left in the queue.
    pub(super) fn leave(&self, qp: QpNum) {
        self.arrived.borrow_mut().remove(&qp);
    }

    /// Returns the next completion of `qp`; `None` if none comes until then.
    pub(super) async fn completion(&self, qp: QpNum, until: Instant) -> Option<Completion> {
        poll_fn(|_| match self.take(qp) {
            Some(completion) => Poll::Ready(Some(completion)),
            None => self.wait(Wish { qp: Some(qp), until }).map(|()| None),
        })
        .await
    }

    /// Waits until `qp` has a completion, which stays where it is, or a thread has rung for it; or
    /// until then.
    pub(super) async fn stirred(&self, qp: QpNum, until: Instant) {
        let mut has_waited = false;
        poll_fn(|_| match self.has_come(qp) || std::mem::replace(&mut has_waited, true) {
            true => Poll::Ready(()),
            false => self.wait(Wish { qp: Some(qp), until }),
        })
        .await;
    }

    /// Returns a bell for the task of `qp`.
    pub(super) fn alarm(&self, qp: QpNum) -> Alarm {
        Alarm { qp, woken: self.woken.clone(), cq: self.cq.clone() }
    }

    fn has_come(&self, qp: QpNum) -> bool {
        self.arrived.borrow().get(&qp).is_some_and(|list| !list.is_empty())
    }

    /// Returns the oldest completion of `qp` that is there already.
    pub(super) fn take(&self, qp: QpNum) -> Option<Completion> {
        self.arrived.borrow_mut().get_mut(&qp)?.pop_front()
    }

    /// Lets other tasks go on for at least so long.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        poll_fn(|_| self.wait(Wish { qp: None, until })).await;
    }

    /// Gives other tasks their turn, if this one has had its own for long enough.
    pub(super) async fn breathe(&self) {
        if self.looked.get().elapsed() >= TURN {
            self.look().await;
        }
    }

    /// Gives other tasks their turn, and takes the completions that are there.
    pub(super) async fn look(&self) {
        let looked = self.looked.get();
        poll_fn(|_| {
            if self.looked.get() != looked {
                return Poll::Ready(());
            }
            self.wish.set(Wish { qp: None, until: looked });
            Poll::Pending
        })
        .await;
    }

    /// Lets a thread of its own do what may take long. `None` if no thread can be made.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        mut tick: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Option<T>, Failure> {
        let Ok(thread) = thread::Builder::new().spawn(work) else { return Ok(None) };
        for time in looks() {
            if thread.is_finished() {
                break;
            }
            tick()?;
            self.sleep(time).await;
        }
        Ok(thread.join().ok())
    }

    fn wait(&self, wish: Wish) -> Poll<()> {
        if Instant::now() >= wish.until {
            return Poll::Ready(());
        }
        self.wish.set(wish);
        Poll::Pending
    }

    /// Runs one task to its end.
    pub(super) fn run<T>(&self, task: impl Future<Output = T>) -> Result<T, Failure> {
        let mut task = pin!(task);
        loop {
            if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Ok(done);
            }
            self.pump(self.wish.get().until, || false)?;
            // The task looks itself for what a thread may have done.
            self.woken.take();
        }
    }

    /// Takes completions, and sleeps for them until that time, or until `other` is true.
    fn pump(&self, until: Instant, other: impl Fn() -> bool) -> Result<(), Failure> {
        let time = until.saturating_duration_since(Instant::now()).min(CHECK_INTERVAL);
        let is_woken = || self.woken.is_some.load(Ordering::SeqCst);
        match self.cq.wait_or(Some(time), || other() || is_woken()) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(endpoint::cannot_wait(&error));
            }
            _ => {}
        }
        self.collect();
        self.looked.set(Instant::now());
        Ok(())
    }

    /// Takes completions out of the queue, for the connections that are there. Returns how many.
    fn collect(&self) -> usize {
        let mut taken = Vec::with_capacity(AT_ONCE);
        let count = self.cq.poll(AT_ONCE, &mut taken);
        let mut arrived = self.arrived.borrow_mut();
        for completion in taken {
            // A connection that has left gets no more.
            if let Some(list) = arrived.get_mut(&completion.qp) {
                list.push_back(completion);
            }
        }
        count
    }
}

/// The tasks of one thread.
#[derive(Default)]
pub(super) struct Tasks<'a>(Vec<(Wish, Task<'a>)>);

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl<'a> Tasks<'a> {
    pub(super) fn add(&mut self, task: impl Future<Output = ()> + 'a) {
        self.0.push((Wish { qp: None, until: Instant::now() }, Box::pin(task)));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes completions, sleeps for them if there is nothing else to do, and lets each task go on
    /// that has what it waits for. `other` ends the sleep.
    pub(super) fn turn(&mut self, hub: &Hub, other: impl Fn() -> bool) -> Result<(), Failure> {
        let next = self.0.iter().map(|(wish, _)| wish.until).min();
        hub.pump(next.unwrap_or_else(|| Instant::now() + CHECK_INTERVAL), other)?;
        let (now, woken) = (hub.looked.get(), hub.woken.take());
        self.0.retain_mut(|(wish, task)| {
            if wish.until > now && !wish.qp.is_some_and(|qp| hub.has_come(qp) || woken.contains(&qp)) {
                return true;
            }
            let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            *wish = hub.wish.get();
            polled.is_pending()
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_the_wait_of_its_connections_task_and_of_no_other() {
        let hub = Hub::new(&Rnic::open().unwrap()).unwrap();
        let later = Instant::now() + Duration::from_secs(3600);
        let alarm = hub.alarm(QpNum(1));
        let mut tasks = Tasks::default();
        for qp in [QpNum(1), QpNum(2)] {
            let hub = &hub;
            tasks.add(async move { hub.stirred(qp, later).await });
        }
        tasks.turn(&hub, || false).unwrap();
        let thread = thread::spawn(move || alarm.ring());
        // Each turn without the bell takes a while: a hundred are enough to hear it.
        for _ in 0..100 {
            if tasks.len() == 2 {
                tasks.turn(&hub, || false).unwrap();
            }
        }
        thread.join().unwrap();
        assert_eq!(tasks.len(), 1);
    }
}

//! Two threads of a device that read files where a read has to wait for a disk: whoever serves
//! other connections, too, does not.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, SendError, Sender};

use parking_lot::Mutex;

use super::thread::spawn;

const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, once there are any. They end with this value, and nobody waits for them.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<Option<Sender<Job>>>);

impl Readers {
    /// Has a job done, in the order in which jobs come. The calling thread does it if there can be
    /// no other.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.0.lock();
        if jobs.is_none() {
            match begin() {
                Ok(begun) => *jobs = Some(begun),
                Err(error) => tracing::warn!(%error, "no threads that read files"),
            }
        }
        let left = match &*jobs {
            Some(jobs) => jobs.send(Box::new(job)),
            None => Err(SendError(Box::new(job) as Job)),
        };
        drop(jobs);
        if let Err(SendError(job)) = left {
            job();
        }
    }
}

fn begin() -> io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let jobs = Arc::new(Mutex::new(jobs));
    for _ in 0..THREADS {
        let jobs = jobs.clone();
        spawn("rddp-read", move || {
            loop {
                let job = jobs.lock().recv();
                let Ok(job) = job else { return };
                job();
            }
        })?;
    }
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_takes_long_leaves_the_other_thread_to_others() {
        let readers = Readers::default();
        let (release, held) = mpsc::channel::<()>();
        readers.run(move || _ = held.recv());
        let (done, results) = mpsc::channel();
        for number in 0..10 {
            let done = done.clone();
            readers
                .run(move || done.send((number, std::thread::current().name().map(String::from))).unwrap());
        }
        for number in 0..10 {
            assert_eq!(results.recv().unwrap(), (number, Some("rddp-read".into())));
        }
        drop(release);
    }

    #[test]
    fn what_was_left_to_the_threads_is_done_though_the_device_is_gone() {
        let readers = Readers::default();
        let (done, results) = mpsc::channel();
        for number in 0..10 {
            let done = done.clone();
            readers.run(move || done.send(number).unwrap());
        }
        drop((readers, done));
        assert_eq!(results.iter().count(), 10);
    }
}

//! Threads for clients, one for each.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

/// The reason for which a client is refused when no thread can be made.
pub const NO_THREAD: &str = "no thread for another client at the moment";

/// Starts a thread that works on `item`. Gives `item` back if no thread can be made.
pub fn start<T: Send + 'static>(
    item: T,
    work: impl FnOnce(T) + Send + 'static,
) -> Result<JoinHandle<()>, (T, io::Error)> {
    let (give, take) = sync_channel(1);
    let thread = Builder::new().spawn(move || {
        if let Ok(item) = take.recv() {
            work(item);
        }
    });
    match thread {
        Ok(thread) => {
            // The thread waits for the item.
            let _ = give.send(item);
            Ok(thread)
        }
        Err(error) => Err((item, error)),
    }
}

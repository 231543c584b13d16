//! The second process of `rddp perf local` and `rddp demo`: this program again, with other
//! arguments.
//!
//! The child prints one line of JSON, with the address on which it listens, and ends when its
//! standard input does. So it does not outlive its parent, however the parent ends.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rddp_command::failure::{Failure, MORE_FILES, is_out_of_files};
use rddp_command::signals;
use serde::de::DeserializeOwned;

/// Time within which the child must end once its standard input has.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Child(process::Child);

impl Child {
    /// Starts the child, and waits for its line.
    pub(crate) fn start<T: DeserializeOwned>(args: &[&str]) -> Result<(Self, T), Failure> {
        let failed = |error: String| Failure::failed(format!("starting the second process: {error}"));
        let child = Command::new("/proc/self/exe")
            .arg0("rddp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| of_files(failed(error.to_string()), &error))?;
        let mut child = Child(child);
        let stdout = child.0.stdout.take().ok_or_else(|| failed("it has no output".into()))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        match serde_json::from_str(&line) {
            Ok(value) => Ok((child, value)),
            Err(_) => Err(failed(format!(
                "it ended ({})",
                child.end().map_or("killed".into(), |status| status.to_string())
            ))),
        }
    }

    /// Closes the child's standard input, and waits until the child has ended. Returns `None` if it
    /// had to be killed.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        drop(self.0.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.0.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        // The child may have ended just now.
        let _ = self.0.kill();
        let _ = self.0.wait();
        None
    }
}

/// Adds what helps where a process can open no more.
fn of_files(failure: Failure, error: &io::Error) -> Failure {
    if is_out_of_files(error) { failure.remedy(MORE_FILES) } else { failure }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes this process, the child, stop when its standard input ends.
pub(crate) fn stop_with_stdin() -> Result<(), Failure> {
    let wait = || {
        let mut octets = [0; 64];
        while matches!(std::io::stdin().read(&mut octets), Ok(1..)) {}
        signals::stop();
    };
    let thread = thread::Builder::new().name("rddp-stdin".into()).spawn(wait);
    thread.map(drop).map_err(|error| Failure::failed(format!("starting a thread: {error}")))
}

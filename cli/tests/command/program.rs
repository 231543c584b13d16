//! Helpers that run the program, to its end or in the background.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A generous time limit for anything, which only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rddp"));
    command
        .args(args)
        .env_remove("RUST_LOG")
        .env_remove("RDDP_LOG")
        .env_remove("RDDP_TOKEN_FILE")
        .stdin(Stdio::null());
    command
}

/// Returns the command, kept on one of the processors that this process may use.
pub(crate) fn on_processor(number: usize, command: &Command) -> Command {
    let usable = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let of = (0..CpuSet::count()).filter(|at| usable.is_set(*at).unwrap()).nth(number).unwrap();
    under(&["taskset", "-c", &of.to_string()], command)
}

/// Returns the command, run by a tool that sets what the process has.
pub(crate) fn under(tool: &[&str], command: &Command) -> Command {
    let mut tooled = Command::new(tool[0]);
    tooled.args(&tool[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tooled.env(name, value),
            None => tooled.env_remove(name),
        };
    }
    tooled.stdin(Stdio::null());
    tooled
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    let output = command(args).output().unwrap();
    Ended::from(output)
}

/// The outcome of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Ended {
            code: output.status.code().expect("no exit code"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// Checks that the program succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Checks that the program failed with this exit code, and printed these reasons.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for text in says {
            assert!(self.stderr.contains(text), "nothing of {text:?}: {self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// Returns the JSON that the program printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A program that runs in the background, and prints its address as JSON.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// The JSON that the program printed first.
    pub(crate) listening: Value,
    pub(crate) addr: SocketAddr,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::by(&mut command(args))
    }

    /// Starts a program by a command of the test's own.
    pub(crate) fn by(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let listening: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let addr = listening["listening"].as_str().unwrap().parse().unwrap();
        Server { child, stdout, stderr, listening, addr }
    }

    pub(crate) fn host(&self) -> String {
        self.addr.to_string()
    }

    /// Returns the next line that the program prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Returns the next line that the program prints to standard error.
    pub(crate) fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Stops reading the program's output.
    pub(crate) fn read_no_more(&mut self) {
        let nothing = Command::new("true").stdout(Stdio::piped()).spawn().map(|mut child| {
            let _ = child.wait();
            child.stdout.take().unwrap()
        });
        self.stdout = BufReader::new(nothing.unwrap());
    }

    /// Asks the program to end gracefully, and returns its exit code.
    pub(crate) fn stop(mut self) -> i32 {
        interrupt(&mut self.child)
    }

    /// Waits until the program ends by itself, and returns its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        wait(&mut self.child)
    }
}

/// A program for which a test does not wait is killed with the test.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends SIGINT, as Ctrl-C does, and returns the exit code.
pub(crate) fn interrupt(child: &mut Child) -> i32 {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    wait(child)
}

/// Returns the exit code of a program, once it has ended.
pub(crate) fn wait(child: &mut Child) -> i32 {
    let mut code = None;
    until("it has ended", || {
        code = child.try_wait().unwrap().map(|status| status.code().expect("no exit code"));
        code.is_some()
    });
    code.unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a TCP service that sends these octets to whoever connects, and closes; without octets, it
/// sends nothing and keeps the connection open.
pub(crate) fn plain_service(greeting: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.write_all(greeting);
                // Octets that arrive are read, since TCP would otherwise send a reset, which could
                // overtake the greeting.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let _ = stream.read(&mut [0; 512]);
            });
        }
    });
    addr
}

/// Returns an output that nobody reads: writing to it fails with EPIPE.
pub(crate) fn nobody() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// Returns an address with a port on which nothing listens.
pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

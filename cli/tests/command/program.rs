//! Helpers: the program, run to its end or in the background.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rddp"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    let output = command(args).output().unwrap();
    Ended::from(output)
}

/// How it ended.
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
    /// It did what it was asked to.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It failed so, and said why.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for text in says {
            assert!(self.stderr.contains(text), "nothing of {text:?}: {self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// What it printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One that runs in the background, and says in JSON where it listens.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// What it said.
    pub(crate) listening: Value,
    pub(crate) addr: SocketAddr,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// The next line that it prints to standard error.
    pub(crate) fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops reading what it prints.
    pub(crate) fn read_no_more(&mut self) {
        let nothing = Command::new("true").stdout(Stdio::piped()).spawn().map(|mut child| {
            let _ = child.wait();
            child.stdout.take().unwrap()
        });
        self.stdout = BufReader::new(nothing.unwrap());
    }

    /// Asks it to end, in good order.
    pub(crate) fn stop(mut self) -> i32 {
        interrupt(&mut self.child)
    }

    /// Waits until it ends by itself.
    pub(crate) fn ended(mut self) -> i32 {
        wait(&mut self.child)
    }
}

/// A program that a test does not wait for does not outlive it.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ctrl-C; the exit code.
pub(crate) fn interrupt(child: &mut Child) -> i32 {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    wait(child)
}

/// Its exit code, once it has ended.
pub(crate) fn wait(child: &mut Child) -> i32 {
    let mut code = None;
    until("it has ended", || {
        code = child.try_wait().unwrap().map(|status| status.code().expect("no exit code"));
        code.is_some()
    });
    code.unwrap()
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A TCP service that greets whoever connects with these octets, and closes; or says nothing and holds on.
pub(crate) fn plain_service(greeting: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.write_all(greeting);
                // Reading what comes keeps TCP from a reset, which could overtake the greeting.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let _ = stream.read(&mut [0; 512]);
            });
        }
    });
    addr
}

/// An output that nobody reads: writing to it is EPIPE.
pub(crate) fn nobody() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// A port on which nothing listens.
pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

//! Processes that are killed after they have attached the program: by tcx nothing stays, and what
//! stays by a classifier the next process removes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use aya::programs::{SchedClassifier, TcAttachType};
use rddp_kernel_patch::kernel::{Attached, Classifier, Patch};

use super::common::net::in_namespace;

#[test]
fn nothing_stays_by_tcx_when_a_process_is_killed() {
    in_namespace(|| {
        if tcx_programs().is_none() {
            eprintln!("SKIPPED: this kernel has no tcx");
            return;
        }
        let process = Process::start(TCX);
        assert_eq!(tcx_programs(), Some(1));
        drop(process);
        assert_eq!(tcx_programs(), Some(0));
        assert_eq!(Classifier::all("lo").unwrap(), []);
    });
}

#[test]
fn a_classifier_that_a_killed_process_left_is_removed_and_others_stay() {
    in_namespace(|| {
        let all = || Classifier::all("lo").unwrap();
        let first = Process::start(CLASSIFIER);
        let [of_first] = all()[..] else { panic!("{:?}", all()) };
        let second = Process::start(CLASSIFIER);
        assert_eq!(all().len(), 2);
        let of_second = all().into_iter().find(|it| *it != of_first).unwrap();
        drop(first);
        assert_eq!(all().len(), 2, "a classifier stays when its process dies");

        let patch = Patch::load().unwrap();
        let own = attach_by_classifier(&patch);
        assert!(all().contains(&of_second) && all().len() == 2, "{:?}", all());
        let another = attach_by_classifier(&patch);
        assert!(all().contains(&of_second) && all().len() == 3, "{:?}", all());
        drop((own, another));
        assert_eq!(all(), [of_second]);
        drop(second);
        let _own = attach_by_classifier(&patch);
        assert_eq!(all().len(), 1);
    });
}

/// Runs in a [`Process`]: attaches, and waits to be killed. It ends with its parent at the
/// latest.
#[test]
#[ignore = "a process of other tests"]
fn process_that_attaches() {
    let Ok(way) = std::env::var(WAY) else { return };
    let patch = Patch::load().unwrap();
    let _attached = if way == TCX { patch.attach("lo").unwrap() } else { attach_by_classifier(&patch) };
    println!("{ATTACHED}");
    let _ = std::io::stdin().read(&mut [0]);
}

/// A process that has attached the program to `lo`. Dropping this kills it (SIGKILL), and waits
/// until it is gone.
struct Process(Child);

impl Process {
    /// Starts it in this thread's network namespace, and waits until it has attached.
    fn start(way: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::process_that_attaches", "--exact", "--ignored", "--nocapture"])
            .env(WAY, way)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with(ATTACHED)), "the process has not attached");
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn attach_by_classifier(patch: &Patch) -> Attached {
    // Without tcx, it is what `attach` has to choose.
    match tcx_programs() {
        Some(_) => patch.attach_by_classifier("lo").unwrap(),
        None => patch.attach("lo").unwrap(),
    }
}

/// Returns the number of programs at the ingress of `lo` by tcx, if the kernel has that.
fn tcx_programs() -> Option<usize> {
    SchedClassifier::query_tcx("lo", TcAttachType::Ingress).ok().map(|(_, programs)| programs.len())
}

/// The variable that tells [`process_that_attaches`] how.
const WAY: &str = "RDDP_TEST_ATTACH";
const TCX: &str = "tcx";
const CLASSIFIER: &str = "classifier";
const ATTACHED: &str = "attached";

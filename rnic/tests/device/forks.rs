//! `fork`: what a child has of its parent's objects does nothing at the device, which both have.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use rddp_rnic::{Access, RecvWr, SendWr, Status};

use crate::support::{Kind, completion, host};

/// In a process of its own: a thread of another test may have the library's lock when it forks.
#[test]
fn a_child_leaves_the_device_alone() {
    let itself = std::env::current_exe().unwrap();
    let mut test = std::process::Command::new(itself);
    test.args(["--exact", "--ignored", "forks::a_child_that_uses_and_drops_everything"]);
    let said = test.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

#[test]
#[ignore = "a process of the test above"]
fn a_child_that_uses_and_drops_everything() {
    for kind in [Kind::Siw, Kind::Rxe, Kind::Adapter] {
        let host = host(&format!("forks{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        let listener = host.rnic.listen(host.address(1, 0), &Default::default()).unwrap();
        // SAFETY: the child ends by `_exit`, whatever its test says.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                nix::unistd::alarm::set(20);
                let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let before = host.objects();
                    assert!(end.qp.post_send(&SendWr::send_inline(1, b"child")).is_err());
                    assert!(end.qp.post_recv(RecvWr::new(1, [])).is_err());
                    end.qp.disconnect();
                    assert!(end.cq.poll_one().is_none() && listener.accept(None).is_err());
                    drop((end, region, listener));
                    assert_eq!(host.objects(), before);
                }));
                // SAFETY: ends the process without destructors of the parent's threads.
                unsafe { libc::_exit(i32::from(held.is_err())) };
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0), "{kind:?}");
            }
        }
        peer.post_receive(&RecvWr::new(2, Vec::new())).unwrap();
        end.qp.post_send(&SendWr::send_inline(3, b"")).unwrap();
        assert_eq!((completion(&mut peer).status, end.next().wr_id), (Status::Success, 3));
    }
}

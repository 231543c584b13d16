use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use super::claim::{Found, Slots};
use super::layout::{BLOCKS, OF_BLOCKS, OF_SLOTS, SLAB, SLOTS};
use super::process::Process;
use super::{SharedState, blocks, file, forget_left, leave_closed, pool};
use rddp_rdmap::TerminateCode;

use crate::{Both, Ended, Options, Phase, Role, State, Why};

fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn slots(folder: &Path) -> Slots {
    Slots::open(folder, user()).unwrap()
}

fn create(slots: Slots, cookie: u64) -> SharedState {
    slots.create(cookie, &Options::new(Role::Initiator)).unwrap()
}

/// Runs `body` in a child of `fork`, with a hold of its own on what it takes in files: what a
/// process leaves or sweeps is of all files that it has mapped, those of other tests among them,
/// and their children have its mappings and locks. Returns whether `body` came to its end.
pub(super) fn in_process(body: impl FnOnce()) -> bool {
    // Before the `fork`: while another thread panics the hook is locked, and would be for ever in
    // the child.
    show_panics_of_children();
    // SAFETY: the child runs code that needs no other thread, and ends without a return.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        Process::forget_me();
        forget_left();
        IS_CHILD.store(true, Ordering::Relaxed);
        let ended = panic::catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(libc::c_int::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of this process; the status lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Has children print their panics themselves: the harness keeps what a test prints in memory,
/// which the child's parent never sees.
fn show_panics_of_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let of_the_harness = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            if IS_CHILD.load(Ordering::Relaxed) {
                drop(writeln!(std::io::stderr(), "{why}"));
            } else {
                of_the_harness(why);
            }
        }));
    });
}

// One test, since a process can have a few files only.
#[test]
fn a_file_has_slots_and_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let works = || {
        let slots = slots(folder.path());
        what_is_taken_is_found_and_free_when_it_is_left(folder.path(), slots);
        it_grows_by_slabs(slots);
        blocks_are_given_back_and_used_again(slots);
        a_holder_that_died_keeps_nothing(slots);
        others_read_what_a_stream_has_done(folder.path(), slots);
        what_is_no_state_is_not_taken_for_one(folder.path(), slots);
        what_exec_has_closed_is_left(folder.path(), slots);
        a_state_of_another_build_is_useless(folder.path(), slots);
        one_that_is_unused_goes(folder.path());
    };
    assert!(in_process(works));
}

fn what_is_taken_is_found_and_free_when_it_is_left(folder: &Path, slots: Slots) {
    let (one, two) = (create(slots, 11), create(slots, 12));
    assert_eq!((one.cookie(), two.cookie(), slots.taken()), (11, 12, 2));
    let Found::State(found) = Slots::find(folder, user(), 12) else { panic!("it is there") };
    assert!(std::ptr::eq(&raw const *found, &raw const *two));
    assert!(matches!(Slots::find(folder, user(), 13), Found::Nothing));
    drop((one, two, found));
    assert_eq!((slots.sweep(), slots.taken()), (0, 2), "for a while they stay");
    super::left::free_all();
    assert_eq!(slots.taken(), 0);
    assert!(matches!(Slots::find(folder, user(), 12), Found::Nothing));
    let again = create(slots, 14);
    assert!(again.ended().is_none() && again.tx.lock().unwrap().owed().is_empty());
    drop(again);
    super::left::free_all();
}

fn others_read_what_a_stream_has_done(folder: &Path, slots: Slots) {
    let state = create(slots, 77);
    {
        let mut rx = state.rx.lock().unwrap();
        (rx.at.octets, rx.at.msn) = (2000, 9);
        let mut tx = state.tx.lock().unwrap();
        (tx.out.octets, tx.out.fpdus, tx.out.msn) = (1000, 5, 4);
        assert!(tx.owe(&[7; 600]));
    }
    state.set_framed();
    let me = std::process::id();
    let found = || super::shown(folder, user()).into_iter().find(|shown| shown.cookie == 77);
    let shown = found().unwrap();
    assert_eq!((shown.holders, shown.active, shown.sdp, shown.phase), (vec![me], true, false, Phase::Framed));
    assert_eq!((shown.octets, shown.fpdus_sent), (Both { sent: 400, received: 2000 }, 5), "600 are owed");
    assert_eq!(shown.sends, Both { sent: 3, received: 8 });
    let end = Ended { why: Why::Terminated, errno: crate::Errno::RESET, code: TerminateCode(0x1203) };
    state.end.set(end);
    let shown = found().unwrap();
    assert_eq!((shown.phase, shown.ended), (Phase::Ended, Some(end)));
    assert!(super::shown(folder, user() + 1).is_empty(), "the file is another user's");
    drop(state);
    super::left::free_all();
    assert_eq!(found(), None);
}

fn it_grows_by_slabs(slots: Slots) {
    let many: Vec<_> = (0..SLOTS as u64 + 5).map(|number| create(slots, 100 + number)).collect();
    assert_eq!(slots.pool().slabs(OF_SLOTS).count(), 2);
    assert!(many.iter().zip(100..).all(|(state, cookie)| state.cookie() == cookie));
    drop(many);
    super::left::free_all();
    assert_eq!(slots.sweep(), 0);
}

fn blocks_are_given_back_and_used_again(slots: Slots) {
    let states: Vec<_> = (0..BLOCKS as u64 + 1).map(|number| create(slots, 1000 + number)).collect();
    for state in &states {
        assert!(state.tx.lock().unwrap().owe(&[7; 5000]));
    }
    let slabs = || slots.pool().slabs(OF_BLOCKS).count();
    assert_eq!(slabs(), 2);
    for state in &states {
        let mut tx = state.tx.lock().unwrap();
        assert_eq!(tx.owed(), [7; 5000]);
        tx.paid(5000);
    }
    for state in &states {
        let mut rx = state.rx.lock().unwrap();
        rx.kept_mut().unwrap().fill(9);
    }
    assert_eq!(slabs(), 2);
    // The block that the state claims is another stream's: the numbers of a file are not trusted.
    let (mut mine, theirs) = (states[0].rx.lock().unwrap(), states[1].rx.lock().unwrap());
    let own = std::mem::replace(&mut mine.kept.block, theirs.kept.block);
    assert!(mine.kept().is_empty() && !mine.is_sound());
    mine.kept.block = own;
    assert!(mine.is_sound());
    drop((mine, theirs));
    assert!(!blocks::sweep(slots.pool()), "all of them are somebody's");
    drop(states);
    super::left::free_all();
    // The blocks are left as by processes that were killed.
    assert!(blocks::sweep(slots.pool()) && !blocks::sweep(slots.pool()));
}

fn a_holder_that_died_keeps_nothing(slots: Slots) {
    let state = create(slots, 5000);
    // SAFETY: the child holds the socket, and ends without running other code.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        Process::forget_me();
        state.join(Process::me());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut about = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: a child of ours, which stays a zombie until it is waited for.
    unsafe {
        libc::waitid(libc::P_PID, pid.unsigned_abs(), about.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
    };
    assert!(!state.is_held_by_others(), "it is a zombie");
    drop(state);
    super::left::free_all();
    assert!(matches!(slots.taken(), 0));
    // SAFETY: waits for a child of ours, without a status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

fn what_is_no_state_is_not_taken_for_one(folder: &Path, slots: Slots) {
    let state = create(slots, 6000);
    let is_found = || matches!(Slots::find(folder, user(), 6000), Found::State(_));
    assert!(is_found());
    let at = (&raw const *state).cast::<u8>().cast_mut();
    // Each boolean, and an invalid role among the options.
    let role = State::ASKED + 24;
    for offset in State::TRUTHS.into_iter().chain([State::MAGIC_AT, role]) {
        // SAFETY: the offset lies inside the state; the octet is either restored or not read
        // meanwhile.
        unsafe {
            let before = at.add(offset).replace(77);
            assert!(!is_found(), "{offset}");
            at.add(offset).write(before);
        }
        assert!(is_found());
    }
    drop(state);
    super::left::free_all();
}

fn what_exec_has_closed_is_left(folder: &Path, slots: Slots) {
    let (closed, open) = (create(slots, 7000), create(slots, 7001));
    assert!(file::is_held_by(&file::path(folder, user()), user(), Process::me()));
    leave_closed(folder, user(), |cookie| cookie == 7001);
    assert!(!closed.is_held(|_| true) && open.is_held(|holder| holder == Process::me()));
    drop((closed, open));
    super::left::free_all();
    assert!(!file::is_held_by(&file::path(folder, user()), user(), Process::me()));
}

fn a_state_of_another_build_is_useless(folder: &Path, slots: Slots) {
    let state = create(slots, 8000);
    let own = file::path(folder, user());
    let other = folder.join(format!("rddp-{}-{:016x}", user(), 8000));
    let mut slab = vec![0; SLAB];
    std::fs::File::open(&own).unwrap().read_exact(&mut slab).unwrap();
    std::fs::write(&other, slab).unwrap();
    drop(state);
    super::left::free_all();
    let is_useless = || matches!(Slots::find(folder, user(), 8000), Found::Useless);
    assert!(!is_useless(), "it is not the user's alone");
    std::fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    assert!(is_useless());
    assert!(matches!(Slots::find(folder, user(), 8001), Found::Nothing));
    std::fs::remove_file(other).unwrap();
}

#[test]
fn a_kernel_before_5_14_allocates_by_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    let opened = file::share(&path, user(), true).unwrap();
    assert_eq!(opened.file.metadata().unwrap().blocks(), 0);
    assert!(file::allocate(&path, user(), 3));
    assert_eq!(opened.file.metadata().unwrap().blocks() * 512, SLAB as u64);
}

fn one_that_is_unused_goes(folder: &Path) {
    let path = file::path(folder, user());
    file::remove_all_unused(folder, user());
    assert!(path.exists(), "it is mapped");
    let (_, pool) = pool::mapped().find(|(_, pool)| pool.is_at(&path)).unwrap();
    pool.leave();
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_not_the_users_alone_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    std::fs::write(&path, []).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let opens = |user| file::share(&path, user, true).is_some();
    assert!(!opens(user()));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(!opens(user()) && !opens(user() + 1));
}

// The pre-authentication child of sshd has another root, and needs a block.
#[test]
fn a_process_that_does_not_see_the_file_makes_it_longer() {
    let outer = tempfile::tempdir().unwrap();
    let (folder, away) = (outer.path().join("folder"), outer.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    // The next process opens a file that is there.
    assert!(in_process(|| assert_eq!(slots(&folder).taken(), 0)));
    assert!(in_process(|| {
        let state = create(slots(&folder), 1);
        std::fs::rename(&folder, &away).unwrap();
        assert_eq!(file::may_have(&file::path(&folder, user()), 1), None);
        assert!(state.rx.lock().unwrap().kept_mut().is_some());
    }));
}

#[test]
fn root_removes_files_with_a_users_name_that_are_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (file::path(folder.path(), user() + 1), file::path(folder.path(), user() + 2));
    let own = folder.path().join("another");
    std::fs::write(&own, []).unwrap();
    std::fs::write(&file, []).unwrap();
    std::os::unix::fs::symlink(&own, &link).unwrap();
    file::remove_all_unused(folder.path(), user() + 1);
    assert!(file.exists() && link.exists(), "of no concern to anybody else");
    file::remove_all_unused(folder.path(), 0);
    assert!(!file.exists() && !link.is_symlink() && own.exists());
}

#[test]
fn threads_that_open_a_file_at_once_have_one_mapping_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    let all = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                all.wait();
                slots(folder.path());
            });
        }
    });
    assert_eq!(pool::mapped().filter(|(_, pool)| pool.is_at(&path)).count(), 1);
}

/// Runs a check in a process of its own, where files may have `longest` octets.
pub(super) fn under_limit(longest: u64, has_passed: impl FnOnce() -> bool) {
    let limit = libc::rlimit { rlim_cur: longest, rlim_max: libc::RLIM_INFINITY };
    assert!(in_process(|| {
        // SAFETY: the limit lives until the call returns; it is the child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        assert!(has_passed());
    }));
}

#[test]
fn a_file_is_as_long_as_the_limit_allows() {
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    let slab = SLAB as u64;
    let len = || std::fs::metadata(&path).unwrap().len();
    under_limit(2 * slab + 5, || {
        let Some(slots) = Slots::open(folder.path(), user()) else { return false };
        let options = Options::new(Role::Initiator);
        let made =
            (1..=3 * SLOTS as u64).map_while(|cookie| slots.create(cookie, &options)).map(std::mem::forget);
        made.count() == 2 * SLOTS && len() == 2 * slab && !file::allocate(&path, user(), 2)
    });
    under_limit(3 * slab, || file::share(&path, user(), true).is_some() && len() == 3 * slab);
    under_limit(slab, || file::share(&path, user(), true).is_some() && len() == 3 * slab);
}

#[test]
fn a_file_that_cannot_be_long_enough_is_not_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    under_limit(SLAB as u64 - 1, || Slots::open(folder.path(), user()).is_none() && !path.exists());
}

#[test]
fn the_front_of_a_slab_is_a_page_where_pages_are_large() {
    let state = SharedState::anonymous(&Options::new(Role::Initiator)).unwrap();
    let large = 64 * 1024;
    let home = std::ptr::from_ref(state.slot().slab.home());
    assert!(home.addr().is_multiple_of(large) && super::layout::OWN_BLOCKS_AT.is_multiple_of(large));
}

#[test]
fn a_name_that_another_user_has_taken_is_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let victim = user() + 1;
    let names: Vec<_> = (0..20)
        .map(|_| {
            let path = file::path(folder.path(), victim);
            let _ = std::fs::write(&path, []);
            path
        })
        .collect();
    assert!(names[1].to_str().unwrap().ends_with("-1") && !names[0].to_str().unwrap().ends_with("-1"));
    assert_eq!(names[19], names[0], "there are a few");
    std::fs::remove_file(&names[3]).unwrap();
    assert_eq!(file::path(folder.path(), victim), names[3], "the first that is free");
    file::remove_all_unused(folder.path(), 0);
    assert!(names.iter().all(|name| !name.exists()));
}

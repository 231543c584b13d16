use std::path::Path;

use super::claim::{Found, Slots};
use super::layout::{BLOCKS, OF_BLOCKS, OF_SLOTS, SLOTS};
use super::process::Process;
use super::{SharedState, file, pool};
use crate::stream::{Options, Role};

fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn slots(folder: &Path) -> Slots {
    Slots::open(folder, user()).unwrap()
}

fn create(slots: Slots, cookie: u64) -> SharedState {
    slots.create(cookie, &Options::new(Role::Initiator)).unwrap()
}

// One test: a process can have a few files only.
#[test]
fn a_file_has_slots_and_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(folder.path());
    what_is_taken_is_found_and_free_when_it_is_left(folder.path(), slots);
    it_grows_by_slabs(slots);
    blocks_are_given_back_and_used_again(slots);
    a_holder_that_died_keeps_nothing(slots);
    one_that_is_unused_goes(folder.path());
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
    let blocks = || slots.pool().slabs(OF_BLOCKS).count();
    assert_eq!(blocks(), 2);
    for state in &states {
        let mut tx = state.tx.lock().unwrap();
        assert_eq!(tx.owed(), [7; 5000]);
        tx.paid(5000);
    }
    for state in &states {
        let mut rx = state.rx.lock().unwrap();
        rx.kept_mut().unwrap().fill(9);
    }
    assert_eq!(blocks(), 2);
    // What it says it has is another's: the numbers of a file are not believed.
    let (mut mine, theirs) = (states[0].rx.lock().unwrap(), states[1].rx.lock().unwrap());
    let own = std::mem::replace(&mut mine.kept_in, theirs.kept_in);
    assert!(mine.kept().is_empty() && !mine.is_sound());
    mine.kept_in = own;
    assert!(mine.is_sound());
    drop((mine, theirs));
    drop(states);
    super::left::free_all();
}

fn a_holder_that_died_keeps_nothing(slots: Slots) {
    let state = create(slots, 5000);
    // SAFETY: the child holds the socket, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        Process::forget_me();
        state.join(Process::me());
        // SAFETY: it ends at once.
        unsafe { libc::_exit(0) };
    }
    let mut about = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: a child of ours, which stays a zombie.
    unsafe {
        libc::waitid(libc::P_PID, pid.unsigned_abs(), about.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
    };
    assert!(!state.is_held_by_others(), "it is a zombie");
    drop(state);
    super::left::free_all();
    assert!(matches!(slots.taken(), 0));
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
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
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = file::path(folder.path(), user());
    std::fs::write(&path, []).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Slots::open(folder.path(), user()).is_none());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(Slots::open(folder.path(), user()).is_none());
    assert!(Slots::open(folder.path(), user() + 1).is_none());
    assert!(!file::has_room(&path, usize::MAX >> 21), "half of what is free");
}

#[test]
fn root_removes_what_has_a_users_name_and_is_anothers() {
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

//! Memory of one block, of a part of one, and of several: how much there is, what it holds, and
//! what is placed at its edges.

use std::collections::HashSet;

use rddp_kernel_patch::kernel::{Memory, Patch, PatchError};
use rddp_kernel_patch::layout::{BLOCK_LEN, Outcome, PIECE_LEN, PIECES};

use super::common::net::{in_namespace, set};
use super::{BASE, CANARIES, STAG, Scene};

const PAGE: usize = 4096;

/// Returns the octets, which nobody changes.
fn octets(memory: &Memory) -> &[u8] {
    // SAFETY: no STag is open.
    unsafe { std::slice::from_raw_parts(memory.ptr().as_ptr(), memory.len()) }
}

fn fill(memory: &Memory, with: u8) {
    // SAFETY: all of the memory, which nobody else changes.
    unsafe { memory.ptr().write_bytes(with, memory.len()) };
}

#[test]
fn memory_of_several_blocks_is_one_range_and_payloads_across_them_are_left() {
    in_namespace(|| {
        set("ipv4/tcp_timestamps", "0");
        let mut scene = Scene::with_memory("127.0.0.1", 0, 2 * PIECE_LEN + 5000);
        let mut refused = 0;
        // Of blocks of one piece, and of two.
        for len in [BLOCK_LEN, PIECE_LEN] {
            let edge = BASE + (len - CANARIES) as u64;
            for (to, fits) in [(edge - 8, true), (edge, true), (edge - 7, false), (edge - 1, false)] {
                scene.run(&scene.write(to, b"8 octets"));
                refused += u64::from(!fits);
                assert_eq!(scene.placing.left(Outcome::AcrossBlocks), refused);
                assert_eq!(scene.placing.take().is_some(), fits);
            }
            assert_eq!(scene.part(len - 9, 18), b"\08 octets8 octets\0");
        }
        scene.run(&scene.write(BASE + (2 * PIECE_LEN - CANARIES) as u64 + 3, b"third"));
        assert_eq!(scene.part(2 * PIECE_LEN + 2, 7), b"\0third\0");
        // What is given back can be had again, as zeros.
        let Scene { patch, memory, .. } = scene;
        patch.stags().close(STAG);
        let start = memory.start();
        drop(memory);
        let memory = patch.pieces().allocate(PIECE_LEN + 1).unwrap();
        assert_eq!(memory.start(), start);
        assert!(octets(&memory).chunks(BLOCK_LEN).all(|part| part == &vec![0; BLOCK_LEN][..part.len()]));
    });
}

#[test]
fn more_memory_than_there_can_be_is_refused_before_any_is_made() {
    in_namespace(|| {
        let patch = Patch::load().unwrap();
        let _one = patch.pieces().allocate(1).unwrap();
        let (most, begun) = (PIECES as usize * PIECE_LEN, resident());
        for len in [most, usize::MAX] {
            assert!(matches!(patch.pieces().allocate(len), Err(PatchError::Full(_))));
        }
        assert!(resident() < begun + PIECE_LEN / PAGE);
    });
}

/// Pages of this process that are in memory.
fn resident() -> usize {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap();
    said.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Memory that is shorter than a block takes pages, and as much memory takes as many blocks.
#[test]
fn short_memory_lies_side_by_side() {
    in_namespace(|| {
        let patch = Patch::load().unwrap();
        let each = 2 * PAGE; // with a rest that nobody has
        let of_block = BLOCK_LEN / each;
        let mut all: Vec<_> =
            (0..2 * of_block).map(|_| patch.pieces().allocate(each - 100).unwrap()).collect();
        let pieces: HashSet<_> = all.iter().map(|memory| memory.start() / PIECE_LEN as u64).collect();
        assert_eq!(pieces.len(), 2, "of {} ranges", all.len());
        all.iter().zip((1..=u8::MAX).cycle()).for_each(|(memory, with)| fill(memory, with));
        for (memory, with) in all.iter().zip((1..=u8::MAX).cycle()) {
            assert!(octets(memory) == vec![with; each - 100], "others have octets of it");
        }
        // What is given back can be had again, as zeros, and the rest stays.
        let start = all.swap_remove(3).start();
        let again = patch.pieces().allocate(1 + PAGE).unwrap();
        assert_eq!((again.start(), octets(&again)), (start, &vec![0; 1 + PAGE][..]));
        assert!(octets(&all[2]) == vec![3; each - 100]);
    });
}

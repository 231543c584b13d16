//! Chains whose numbers another process has damaged.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::blocks::Lease;
use super::super::chain::{Chain, ChainError, Chains, parts};
use super::super::layout::BLOCK;
use super::super::links::{find, next};
use super::super::many::{self, Block};
use super::{anonymous, in_file};
use crate::sink::Sink;

/// Owners of blocks that are no stream's.
const NOBODY: [u64; 2] = [u64::MAX, 1 << 33];

type Operation = fn(&mut Chains<'_>, &mut Chain, &mut Chain) -> Result<(), ChainError>;

const OPERATIONS: [Operation; 13] = [
    |chains, chain, _| chains.append(chain, &[1; 3000]),
    |chains, chain, _| chains.append(chain, &[1; BLOCK + 3000]),
    |chains, chain, _| chains.fill(chain, 2 * BLOCK, |_| Ok::<_, ()>(BLOCK + 9)).map(drop),
    |chains, chain, _| chains.write_at(chain, 9, &[1; BLOCK]),
    |chains, chain, _| chains.read_at(chain, 9, &mut [0; BLOCK]),
    |chains, chain, _| chains.look_at(chain, 0, chain.len(), |pieces| assert!(pieces.len() < 99)),
    |chains, chain, _| chains.take(chain, &mut Sink::counter()).map(drop),
    |chains, chain, _| chains.drop_front(chain, BLOCK),
    |chains, chain, _| chains.truncate(chain, BLOCK),
    |chains, chain, _| chains.clear(chain),
    |chains, chain, other| chains.concat(chain, other),
    |chains, chain, other| chains.concat(other, chain),
    |chains, chain, _| chains.mend(chain),
];

/// Returns the blocks of a chain.
fn blocks_of<'b>(chains: &Chains<'_>, chain: &Chain) -> Vec<Block<'b>> {
    let mut list = Vec::new();
    let mut lease = chain.first;
    while let Ok(block) = find(chains.slot, lease) {
        list.push(block);
        lease = next(block).unwrap();
    }
    list
}

/// Changes one number of a chain: the one that is `field`, to one that is `value`. `None`: there
/// are not so many.
fn damage(chains: &Chains<'_>, chain: &mut Chain, other: &Chain, field: usize, value: usize) -> Option<()> {
    let leases =
        [chain.first, chain.last, other.first, Lease::of(u32::MAX - 1), Lease::of(5000), Lease::NONE];
    let lease = leases.get(value);
    let number = [0, 1, BLOCK as u32, 2 * BLOCK as u32, u32::MAX - 1, u32::MAX].get(value);
    match field {
        0 => chain.first = *lease?,
        1 => chain.last = *lease?,
        2 => chain.blocks = *number?,
        3 => chain.octets = *number?,
        field => {
            let word = |entry: usize| match entry {
                0 => Some(lease?.word()),
                1 => number.map(|number| u64::from(*number)),
                2 => number.map(|number| u64::from(*number) << 32),
                3 => NOBODY.get(value).copied(),
                _ => [NOBODY[0], NOBODY[1], 0].get(value).copied(),
            };
            let (block, entry) = ((field - 4) / 5, (field - 4) % 5);
            let block = *blocks_of(chains, chain).get(block)?;
            let place: &AtomicU64 = match entry {
                0 | 3 => &block.entry.cookie,
                1 | 2 => &block.entry.holders[0],
                _ => &block.entry.used,
            };
            place.store(word(entry)?, Ordering::Relaxed);
        }
    }
    Some(())
}

#[test]
fn damaged_numbers_end_in_an_error_or_in_octets() {
    for state in [anonymous(), in_file()] {
        let mut guard = state.rx.lock().unwrap();
        let (_, mut chains, _) = parts(&mut guard);
        let mut tried = 0;
        for field in 0..4 + 3 * 5 {
            for value in 0..6 {
                for operation in OPERATIONS {
                    tried += usize::from(survives(&mut chains, field, value, operation));
                }
            }
        }
        assert_eq!(tried, OPERATIONS.len() * (4 * 6 + 3 * (3 * 6 + 2 + 3)));
    }
}

/// Does an operation on a chain with one wrong number, and then all others. Returns whether there
/// is such a number.
fn survives(chains: &mut Chains<'_>, field: usize, value: usize, operation: Operation) -> bool {
    let (mut chain, mut other) = (Chain::default(), Chain::default());
    chains.append(&mut chain, &[3; 2 * BLOCK + 5000]).unwrap();
    chains.append(&mut other, &[2; 100]).unwrap();
    let all: Vec<_> = [&chain, &other].into_iter().flat_map(|chain| blocks_of(chains, chain)).collect();
    let is_one = damage(chains, &mut chain, &other, field, value).is_some();
    let _ = chains.check(&chain);
    let _ = operation(chains, &mut chain, &mut other);
    for then in OPERATIONS {
        let _ = then(chains, &mut chain, &mut other);
    }
    // The numbers of blocks that are lost are those of a stream that is over.
    let _ = (chains.clear(&mut chain), chains.clear(&mut other));
    for (block, owner) in all.iter().flat_map(|block| NOBODY.map(|owner| (block, owner))) {
        let _ = block.entry.used.compare_exchange(owner, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    many::forget_all(chains.slot);
    is_one
}

#[test]
fn a_chain_of_another_stream_is_not_touched() {
    let states = [in_file(), in_file()];
    let mut guards = states.each_ref().map(|state| state.rx.lock().unwrap());
    let [one, two] = &mut guards;
    let ((_, mut mine, _), (_, mut theirs, _)) = (parts(one), parts(two));
    let mut chain = Chain::default();
    mine.append(&mut chain, &[7; 100]).unwrap();
    let copy = || Chain { first: chain.first, last: chain.last, ..Chain::default() };
    let mut stolen = Chain { blocks: 1, octets: 100, ..copy() };
    let damaged = Err(ChainError::Damaged);
    assert_eq!(theirs.read_at(&stolen, 0, &mut [0; 9]), damaged);
    assert_eq!(theirs.append(&mut stolen, &[0; 9]), damaged);
    assert_eq!((theirs.mend(&mut stolen), theirs.clear(&mut stolen)), (damaged, damaged));
    assert_eq!(super::contents(&mine, &chain), [7; 100]);
    mine.clear(&mut chain).unwrap();
}

#[test]
fn a_block_is_not_lent_twice() {
    let state = anonymous();
    let mut guard = state.rx.lock().unwrap();
    let (_, mut chains, _) = parts(&mut guard);
    let mut chain = Chain::default();
    chains.append(&mut chain, &[3; 2 * BLOCK]).unwrap();
    let blocks = blocks_of(&chains, &chain);
    blocks[1].entry.cookie.store(chain.first.word(), Ordering::Relaxed);
    chain.octets = 4 * BLOCK as u32;
    assert_eq!(
        (chains.check(&chain), chains.mend(&mut chain)),
        (Err(ChainError::Damaged), Err(ChainError::Damaged))
    );
}

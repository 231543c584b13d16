//! Chains against a model: a vector of octets.

use std::io::IoSliceMut;

use rddp_test_support::Random;

use super::super::chain::{Chain, ChainError, Chains, MOST_BLOCKS, PIECES};
use super::super::layout::BLOCK;
use super::super::many;
use super::{contents, each_kind, octets};
use crate::sink::Sink;

/// Returns a length: short, about a block, or several.
fn length(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(40),
        1 => BLOCK - 3 + random.below(6),
        _ => random.below(3 * BLOCK),
    }
}

/// Fills lent room from the front on. Returns how much of `octets` there was room for.
fn pour(room: &mut [IoSliceMut<'_>], octets: &[u8]) -> usize {
    let mut rest = octets;
    for piece in room {
        let (now, later) = rest.split_at(piece.len().min(rest.len()));
        piece[..now.len()].copy_from_slice(now);
        rest = later;
    }
    octets.len() - rest.len()
}

#[test]
fn a_chain_does_as_its_model_does() {
    for seed in 1..12 {
        let mut random = Random::new(seed);
        each_kind(|chains| {
            let mut all: [Chain; 2] = Default::default();
            let mut models: [Vec<u8>; 2] = Default::default();
            for _ in 0..80 {
                let which = random.below(2);
                a_random_step(chains, &mut random, &mut all[which], &mut models[which]);
                if random.below(8) == 0 {
                    let [one, two] = &mut all;
                    chains.concat(one, two).unwrap();
                    let moved = std::mem::take(&mut models[1]);
                    models[0].extend(moved);
                }
                for (chain, model) in all.iter().zip(&models) {
                    chains.check(chain).unwrap();
                    assert!(contents(chains, chain) == *model, "seed {seed}");
                    assert_eq!(chain.is_empty(), *chain == Chain::default());
                }
                let blocks = all.iter().map(|chain| chain.blocks as usize).sum::<usize>();
                assert_eq!(many::count(chains.slot), blocks);
            }
            all.iter_mut().for_each(|chain| chains.clear(chain).unwrap());
        });
    }
}

fn a_random_step(chains: &mut Chains<'_>, random: &mut Random, chain: &mut Chain, model: &mut Vec<u8>) {
    let new = {
        let len = length(random);
        octets(random, len)
    };
    let at = random.below(model.len() + 1);
    let len = new.len().min(model.len() - at);
    match random.below(10) {
        0 | 1 => {
            chains.append(chain, &new).unwrap();
            model.extend(new);
        }
        2 => {
            chains.extend(chain, new.len()).unwrap();
            model.resize(model.len() + new.len(), 0);
        }
        3 => {
            // Less comes than there was room for.
            let some = random.below(new.len() + 1);
            let filled = chains.fill(chain, new.len(), |room| Ok::<_, ()>(pour(room, &new[..some])));
            assert_eq!(filled, Ok(Ok(some)));
            model.extend(&new[..some]);
        }
        4 | 5 => {
            chains.write_at(chain, at, &new[..len]).unwrap();
            model[at..at + len].copy_from_slice(&new[..len]);
        }
        6 => {
            let seen = chains.look_at(chain, at, len, |pieces| {
                pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<_>>()
            });
            assert!(seen.unwrap() == model[at..at + len]);
        }
        7 => {
            let (mut one, mut two) = (vec![0; len / 3], vec![0; len - len / 3]);
            let mut pieces = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            let (peeks, mut sink) = (random.below(2) == 0, Sink::new(&mut pieces, false));
            let from = if peeks { at } else { 0 };
            let count = if peeks { chains.peek(chain, at, &mut sink) } else { chains.take(chain, &mut sink) };
            assert_eq!(count, Ok(len));
            assert!([one, two].concat() == model[from..from + len]);
            if !peeks {
                model.drain(..len);
            }
        }
        8 => {
            chains.drop_front(chain, at).unwrap();
            model.drain(..at);
        }
        _ => {
            chains.truncate(chain, at).unwrap();
            model.truncate(at);
        }
    }
}

#[test]
fn what_does_not_fit_the_chain_is_refused() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        chains.append(&mut chain, &[7; 100]).unwrap();
        let damaged = Err(ChainError::Damaged);
        assert_eq!(chains.read_at(&chain, 1, &mut [0; 100]), damaged);
        assert_eq!(chains.write_at(&chain, 101, &[]), damaged);
        assert_eq!(chains.write_at(&chain, usize::MAX, &[0; 2]), damaged);
        assert_eq!(chains.drop_front(&mut chain, 101), damaged);
        assert_eq!(chains.peek(&chain, 101, &mut Sink::counter()).map(drop), damaged);
        assert_eq!(chains.extend(&mut chain, usize::MAX), Err(ChainError::NoRoom));
        assert_eq!(chains.extend(&mut chain, MOST_BLOCKS as usize * BLOCK), Err(ChainError::NoRoom));
        assert_eq!(chains.fill(&mut chain, 1 << 20, |_| Err::<usize, _>(5)), Ok(Err(5)));
        assert!(contents(chains, &chain) == [7; 100] && chains.check(&chain).is_ok());
        assert_eq!(chains.take(&mut chain, &mut Sink::counter()), Ok(100));
    });
}

#[test]
fn a_long_piece_is_lent_in_as_many_blocks_as_a_call_takes() {
    each_kind(|chains| {
        let mut chain = Chain::default();
        chains.append(&mut chain, &[1; 10]).unwrap();
        let mut most = 0;
        let fill = |room: &mut [IoSliceMut<'_>]| {
            most = room.iter().map(|piece| piece.len()).sum();
            Ok::<_, ()>(most)
        };
        assert_eq!(chains.fill(&mut chain, usize::MAX, fill), Ok(Ok((PIECES - 1) * BLOCK)));
        assert_eq!((most, chain.blocks as usize), ((PIECES - 1) * BLOCK, PIECES));
        chains.append(&mut chain, &[2; 3 * BLOCK]).unwrap();
        let lent = chains.look_at(&chain, 5, usize::MAX >> 1, |pieces| pieces.len());
        assert_eq!(lent, Err(ChainError::Damaged));
        let lent = chains.look_at(&chain, 5, chain.len() - 5, |pieces| {
            (pieces.len(), pieces.iter().map(|piece| piece.len()).sum())
        });
        assert_eq!(lent, Ok((PIECES, PIECES * BLOCK - 5)));
        chains.clear(&mut chain).unwrap();
    });
}

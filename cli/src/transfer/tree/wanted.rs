//! Answers of a receiver to offers of files: said by the one end, heard by the other.

use std::iter::Peekable;
use std::vec::IntoIter;

use crate::failure::Failure;
use crate::transfer::protocol::{BEGUN, Begun, RUNS, Run, Want, out_of_step};

/// A receiver's answers, while files are offered.
#[derive(Default)]
pub(super) struct Wanted(Want);

impl Wanted {
    pub(super) fn count(&self) -> usize {
        self.0.offered
    }

    /// The receiver has the next file already.
    pub(super) fn same(&mut self) {
        let number = self.0.offered;
        self.0.offered += 1;
        match self.0.same.last_mut() {
            Some(Run(first, count)) if *first + *count == number => *count += 1,
            _ => self.0.same.push(Run(number, 1)),
        }
    }

    /// The receiver wants the next file, of which it may have the first octets.
    pub(super) fn wants(&mut self, begun: Option<(u64, String)>) {
        let number = self.0.offered;
        self.0.offered += 1;
        self.0.begun.extend(begun.map(|(have, proof)| Begun { number, have, proof }));
    }

    /// Returns the answers, and begins anew.
    pub(super) fn take(&mut self) -> Want {
        std::mem::take(&mut self.0)
    }
}

/// The answers that a sender has got, file by file.
#[derive(Debug)]
pub(super) struct Answers {
    number: usize,
    same: Peekable<IntoIter<Run>>,
    begun: Peekable<IntoIter<Begun>>,
}

impl Answers {
    /// Checks a receiver's answers to `offered` files.
    pub(super) fn new(want: Want, offered: usize) -> Result<Self, Failure> {
        let Want { offered: answered, same, begun } = want;
        let mut end = 0;
        let are_runs = same.iter().all(|Run(first, count)| {
            let is_next = *first >= end && *count > 0 && *count <= offered.saturating_sub(*first);
            end = first.saturating_add(*count);
            is_next
        });
        let are_rising = begun.is_sorted_by(|one, next| one.number < next.number);
        let are_offered = begun.last().is_none_or(|last| last.number < offered);
        let are_few = same.len() <= RUNS && begun.len() <= BEGUN;
        if answered != offered || !are_runs || !are_rising || !are_offered || !are_few {
            return Err(out_of_step());
        }
        Ok(Answers { number: 0, same: same.into_iter().peekable(), begun: begun.into_iter().peekable() })
    }

    /// Returns whether the receiver has the next file, and what it has of it.
    pub(super) fn next(&mut self) -> (bool, Option<Begun>) {
        let number = self.number;
        self.number += 1;
        while self.same.next_if(|Run(first, count)| first + count <= number).is_some() {}
        let is_same = self.same.peek().is_some_and(|Run(first, _)| *first <= number);
        (is_same, self.begun.next_if(|begun| begun.number == number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_heard_as_they_were_said() {
        for seed in 0..200 {
            let noise = rddp_test_support::random_octets(seed, 100);
            let mut wanted = Wanted::default();
            let mut said = Vec::new();
            let mut left = BEGUN;
            for (number, octet) in (0u64..).zip(noise) {
                let begun = (octet % 7 == 3 && left > 0).then(|| (number, "proof".to_owned()));
                left -= usize::from(begun.is_some());
                if octet % 2 == 0 {
                    wanted.same();
                } else {
                    wanted.wants(begun.clone());
                }
                said.push((octet % 2 == 0, begun.filter(|_| octet % 2 == 1)));
            }
            let mut answers = Answers::new(wanted.take(), 100).unwrap();
            for (is_same, begun) in said {
                let (heard_same, heard) = answers.next();
                assert_eq!((heard_same, heard.map(|heard| (heard.have, heard.proof))), (is_same, begun));
            }
            assert_eq!(wanted.count(), 0);
        }
    }

    #[test]
    fn answers_about_what_was_not_offered_are_refused() {
        let begun = |number| Begun { number, have: 1, proof: String::new() };
        let want = |same: Vec<Run>, begun: Vec<Begun>| Want { offered: 3, same, begun };
        assert!(Answers::new(want(vec![Run(0, 1), Run(1, 2)], vec![begun(0), begun(2)]), 3).is_ok());
        for bad in [
            Want { offered: 2, ..Want::default() },
            Want { offered: 4, ..Want::default() },
            want(vec![Run(0, 4)], vec![]),
            want(vec![Run(3, 1)], vec![]),
            want(vec![Run(0, 0)], vec![]),
            want(vec![Run(1, usize::MAX)], vec![]),
            want(vec![Run(usize::MAX, 1)], vec![]),
            want(vec![Run(0, 2), Run(1, 1)], vec![]),
            want(vec![], vec![begun(3)]),
            want(vec![], vec![begun(1), begun(1)]),
            want(vec![], vec![begun(1), begun(0)]),
        ] {
            assert!(Answers::new(bad.clone(), 3).is_err(), "{bad:?}");
        }
    }
}

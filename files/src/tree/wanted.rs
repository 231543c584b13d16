//! Answers of a receiver to offers of files: said by the one end, heard by the other.

use std::iter::Peekable;
use std::vec::IntoIter;

use rddp_command::failure::Failure;

use super::refused::There;
use crate::protocol::{BEGUN, Begun, RUNS, Run, Want, out_of_step};

/// A receiver's answers, while files are offered, and the directories that were named.
#[derive(Default)]
pub(super) struct Wanted(Want, usize);

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

    /// Something else stays in the place of the next file.
    pub(super) fn refuses(&mut self, there: There) {
        self.0.refused.push((self.0.offered, there.number()));
        self.same();
    }

    /// The next directory was named. Returns its number.
    pub(super) fn has_dir(&mut self) -> usize {
        self.1 += 1;
        self.1 - 1
    }

    /// Something else stays in the place of this directory.
    pub(super) fn refuses_dir(&mut self, number: usize, there: There) {
        self.0.refused_dirs.push((number, there.number()));
    }

    /// This directory or link would be made, if something was to be changed.
    pub(super) fn would_make(&mut self, number: usize) {
        self.0.made.push(number);
    }

    /// The receiver has the next file, which would get other permissions.
    pub(super) fn would_permit(&mut self) {
        self.0.permitted.push(self.0.offered);
        self.same();
    }

    /// This directory would get other permissions.
    pub(super) fn would_permit_dir(&mut self, number: usize) {
        self.0.permitted_dirs.push(number);
    }

    /// The receiver wants the next file, of which it may have the first octets.
    pub(super) fn wants(&mut self, begun: Option<(u64, String)>) {
        let number = self.0.offered;
        self.0.offered += 1;
        self.0.begun.extend(begun.map(|(have, proof)| Begun { number, have, proof }));
    }

    /// Returns the answers, and begins anew.
    pub(super) fn take(&mut self) -> Want {
        std::mem::take(self).0
    }
}

/// The answers that a sender has got, file by file.
#[derive(Debug)]
pub(super) struct Answers {
    number: usize,
    same: Peekable<IntoIter<Run>>,
    begun: Peekable<IntoIter<Begun>>,
    refused: Peekable<IntoIter<(usize, u8)>>,
    dirs: Vec<(usize, u8)>,
    made: Vec<usize>,
    permitted: Peekable<IntoIter<usize>>,
    permitted_dirs: Vec<usize>,
}

/// A receiver's answer to the offer of a file.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Same,
    /// The receiver has the file, with other permissions.
    Permitted,
    Refused(There),
    Wanted(Option<Begun>),
}

impl Answers {
    /// Checks a receiver's answers to `offered` files, behind `dirs` directories.
    pub(super) fn new(want: Want, offered: usize, dirs: usize) -> Result<Self, Failure> {
        let Want {
            offered: answered,
            same,
            begun,
            refused,
            refused_dirs,
            made,
            permitted,
            permitted_dirs,
            removed: _,
        } = want;
        let mut end = 0;
        let are_runs = same.iter().all(|Run(first, count)| {
            let is_next = *first >= end && *count > 0 && *count <= offered.saturating_sub(*first);
            end = first.saturating_add(*count);
            is_next
        });
        let are_rising = begun.is_sorted_by(|one, next| one.number < next.number);
        let are_offered = begun.last().is_none_or(|last| last.number < offered);
        let are_few = same.len() <= RUNS && begun.len() <= BEGUN;
        let are_refused = |list: &[(usize, u8)], most| {
            list.is_sorted_by(|one, next| one.0 < next.0) && list.last().is_none_or(|last| last.0 < most)
        };
        let are_refused = are_refused(&refused, offered) && are_refused(&refused_dirs, dirs);
        let are_below =
            |list: &[usize], most| list.is_sorted() && list.last().is_none_or(|last| *last < most);
        let are_named =
            are_below(&made, dirs) && are_below(&permitted, offered) && are_below(&permitted_dirs, dirs);
        if answered != offered
            || !are_refused
            || !are_named
            || !are_runs
            || !are_rising
            || !are_offered
            || !are_few
        {
            return Err(out_of_step());
        }
        let (same, begun) = (same.into_iter().peekable(), begun.into_iter().peekable());
        Ok(Answers {
            number: 0,
            same,
            begun,
            refused: refused.into_iter().peekable(),
            dirs: refused_dirs,
            made,
            permitted: permitted.into_iter().peekable(),
            permitted_dirs,
        })
    }

    /// Returns the directories that were refused, by their numbers.
    pub(super) fn refused_dirs(&mut self) -> impl Iterator<Item = (usize, There)> + use<> {
        std::mem::take(&mut self.dirs).into_iter().map(|(number, there)| (number, There::from_number(there)))
    }

    /// Returns the directories and links that would be made, by their numbers.
    pub(super) fn made_dirs(&mut self) -> impl Iterator<Item = usize> + use<> {
        std::mem::take(&mut self.made).into_iter()
    }

    /// Returns the directories that would get other permissions, by their numbers.
    pub(super) fn permitted_dirs(&mut self) -> impl Iterator<Item = usize> + use<> {
        std::mem::take(&mut self.permitted_dirs).into_iter()
    }

    /// Returns the answer about the next file.
    pub(super) fn next(&mut self) -> Answer {
        let number = self.number;
        self.number += 1;
        while self.same.next_if(|Run(first, count)| first + count <= number).is_some() {}
        let is_same = self.same.peek().is_some_and(|Run(first, _)| *first <= number);
        let refused = self.refused.next_if(|(refused, _)| *refused == number);
        let begun = self.begun.next_if(|begun| begun.number == number);
        let permitted = self.permitted.next_if_eq(&number);
        match refused {
            Some((_, there)) => Answer::Refused(There::from_number(there)),
            None if is_same && permitted.is_some() => Answer::Permitted,
            None if is_same => Answer::Same,
            None => Answer::Wanted(begun),
        }
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
                match octet % 4 {
                    0 | 1 => wanted.wants(begun.clone()),
                    2 => wanted.same(),
                    _ => wanted.refuses(There::Pipe),
                }
                said.push((octet % 4, begun));
            }
            let mut answers = Answers::new(wanted.take(), 100, 0).unwrap();
            for (number, (octet, begun)) in said.into_iter().enumerate() {
                let begun = begun.map(|(have, proof)| Begun { number, have, proof });
                let meant = [Answer::Wanted(begun), Answer::Same, Answer::Refused(There::Pipe)];
                assert_eq!(answers.next(), meant.into_iter().nth(usize::from(octet.max(1) - 1)).unwrap());
            }
            assert_eq!(wanted.count(), 0);
        }
    }

    #[test]
    fn answers_about_what_was_not_offered_are_refused() {
        let begun = |number| Begun { number, have: 1, proof: String::new() };
        let want = |same: Vec<Run>, begun: Vec<Begun>| Want { offered: 3, same, begun, ..Want::default() };
        assert!(Answers::new(want(vec![Run(0, 1), Run(1, 2)], vec![begun(0), begun(2)]), 3, 0).is_ok());
        let refused =
            Want { refused: vec![(0, 1), (2, 1)], refused_dirs: vec![(1, 1)], ..want(vec![], vec![]) };
        assert!(Answers::new(refused.clone(), 3, 2).is_ok());
        for bad in [
            Want { offered: 2, ..Want::default() },
            Want { refused: vec![(3, 1)], ..refused.clone() },
            Want { refused: vec![(1, 1), (1, 1)], ..refused.clone() },
            Want { refused_dirs: vec![(2, 1)], ..refused.clone() },
            Want { made: vec![2], ..refused.clone() },
            Want { made: vec![1, 0], ..refused.clone() },
            Want { permitted: vec![3], ..refused.clone() },
            Want { permitted: vec![1, 0], ..refused.clone() },
            Want { permitted_dirs: vec![2], ..refused },
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
            assert!(Answers::new(bad.clone(), 3, 2).is_err(), "{bad:?}");
        }
    }
}

//! Patterns for names, as in a shell: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a character that
//! stands for itself.

/// Returns whether `pattern` matches all of `name`. Takes time of at most the product of their
/// lengths.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut left) = (pattern, name);
    // The pattern behind the last star, and the part of the name that this star has not taken yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', after)) = rest.split_first().map(|(first, after)| (*first, after)) {
            star = Some((after, left));
            rest = after;
            continue;
        }
        let taken = left.split_first().and_then(|(octet, after)| Some((one(rest, *octet)?, after)));
        match taken {
            Some(both) => (rest, left) = both,
            None if rest.is_empty() && left.is_empty() => return true,
            None => {
                // No match: the last star takes one octet more, and the pattern behind it is tried
                // again.
                let Some((after, from)) = star else { return false };
                let Some((_, from)) = from.split_first() else { return false };
                star = Some((after, from));
                (rest, left) = (after, from);
            }
        }
    }
}

/// Returns whether the pattern is well formed: every `[` has its `]`, and `\` something behind it.
pub(super) fn is_one(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'[' => match class(after) {
                Some((_, _, after)) => after,
                None => return false,
            },
            b'\\' if after.is_empty() => return false,
            b'\\' => &after[1..],
            _ => after,
        };
    }
    !pattern.is_empty()
}

/// Returns the rest of the pattern if its first part matches `octet`.
fn one(pattern: &[u8], octet: u8) -> Option<&[u8]> {
    let (first, after) = pattern.split_first()?;
    match first {
        b'?' => Some(after),
        b'[' => match class(after) {
            Some((inverted, set, after)) => (in_set(set, octet) != inverted).then_some(after),
            None => (octet == b'[').then_some(after),
        },
        b'\\' => {
            let (literal, after) = after.split_first()?;
            (*literal == octet).then_some(after)
        }
        literal => (*literal == octet).then_some(after),
    }
}

/// Splits the pattern behind a `[`: returns whether the set is inverted, the set, and the pattern
/// behind the `]`.
fn class(pattern: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let inverted = matches!(pattern.first(), Some(b'!' | b'^'));
    let set = &pattern[usize::from(inverted)..];
    // A `]` that comes first is a member of the set and does not end it.
    let end = set.iter().skip(1).position(|octet| *octet == b']')? + 1;
    Some((inverted, &set[..end], &set[end + 1..]))
}

fn in_set(mut set: &[u8], octet: u8) -> bool {
    while let Some((&low, rest)) = set.split_first() {
        let (high, rest) = match rest {
            [b'-', high, rest @ ..] => (*high, rest),
            _ => (low, rest),
        };
        if (low..=high).contains(&octet) {
            return true;
        }
        set = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("*", &["", "curl"], &[]),
            ("curl", &["curl"], &["", "cur", "curl7", "Curl"]),
            ("c?rl", &["curl", "carl"], &["crl", "cuurl"]),
            ("*rl*", &["curl", "rl", "girls"], &["lr"]),
            ("a*b*c", &["abc", "aXbbXcc"], &["acb", "abcd"]),
            ("[a-cx]1", &["a1", "c1", "x1"], &["d1", "-1"]),
            ("[!a-c]", &["d", "-"], &["a", ""]),
            ("[]-]", &["]", "-"], &["a"]),
            ("\\*\\?", &["*?"], &["ab"]),
        ];
        for (pattern, yes, no) in cases {
            assert!(is_one(pattern.as_bytes()), "{pattern}");
            for name in *yes {
                assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
            for name in *no {
                assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
        }
        for pattern in ["", "[", "[a", "[]", "x\\"] {
            assert!(!is_one(pattern.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_matched_in_time() {
        let pattern = b"*a".repeat(500);
        let name = b"a".repeat(499);
        assert!(!matches(&pattern, &name));
    }
}

//! Patterns of what is left out of a tree: those of rsync's `--exclude` with `*`, `**`, `?`, and a
//! slash at the beginning or the end.

/// The patterns of one transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excluded(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    tokens: Vec<Token>,
    /// The pattern matches from the uppermost directory on.
    is_anchored: bool,
    only_dirs: bool,
    /// The pattern matches paths, not only their last parts.
    is_path: bool,
    /// The pattern begins with `**`: what stands before may also be nothing.
    begins_wild: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Octet(u8),
    /// `?`: an octet but a slash.
    One,
    /// `*`: octets but slashes.
    Part,
    /// `**`: any octets.
    All,
}

impl Excluded {
    /// Takes patterns. Returns the first one that is none, and why.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        let parse = |text: &String| Pattern::parse(text).map_err(|why| format!("--exclude {text}: {why}"));
        patterns.iter().map(parse).collect::<Result<_, _>>().map(Excluded)
    }

    /// Returns whether what has this path, counted from the uppermost directory, is left out.
    pub(crate) fn has(&self, path: &[u8], is_dir: bool) -> bool {
        self.0.iter().any(|pattern| pattern.matches(path, is_dir))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (text, only_dirs) = match text.strip_suffix('/') {
            Some(rest) if !rest.is_empty() => (rest, true),
            _ => (text, false),
        };
        let is_rule = text.starts_with("- ") || text.starts_with("+ ") || text == "!";
        if text.is_empty() || text == "/" || is_rule {
            return Err("no pattern");
        }
        if text.contains(['[', '\\', '\0']) || text.contains("***") {
            return Err("only *, **, ? and slashes mean something, and [, \\ and *** are not known");
        }
        let (is_path, begins_wild) = (text.contains('/') || text.contains("**"), text.starts_with("**"));
        let (octets, is_anchored) = match text.strip_prefix('/') {
            Some(rest) => (rest.as_bytes(), true),
            None => (text.as_bytes(), false),
        };
        let (mut tokens, mut rest) = (Vec::new(), octets);
        while let [octet, behind @ ..] = rest {
            rest = behind;
            tokens.push(match (*octet, behind) {
                (b'*', [b'*', behind @ ..]) => {
                    rest = behind;
                    Token::All
                }
                (b'*', _) => Token::Part,
                (b'?', _) => Token::One,
                (octet, _) => Token::Octet(octet),
            });
        }
        Ok(Pattern { tokens, is_anchored, only_dirs, is_path, begins_wild })
    }

    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        let last = path.rsplit(|octet| *octet == b'/').next().unwrap_or(path);
        let text = if self.is_path { path } else { last };
        // Where the tokens that have matched so far may end. Each octet moves all of these on, so
        // that no pattern takes longer than its length for each.
        let mut ends = vec![false; self.tokens.len() + 1];
        ends[0] = true;
        self.pass_over(&mut ends);
        let slash: &[u8] = if self.begins_wild { b"/" } else { b"" };
        for octet in slash.iter().chain(text) {
            for end in (0..ends.len()).rev() {
                let is_moved = end > 0 && ends[end - 1] && self.tokens[end - 1].takes(*octet);
                let stays = ends[end] && self.tokens.get(end).is_some_and(|token| token.goes_on(*octet));
                ends[end] = is_moved || stays;
            }
            // Without an anchor it may begin behind each slash.
            ends[0] |= *octet == b'/' && !self.is_anchored;
            self.pass_over(&mut ends);
        }
        ends[self.tokens.len()]
    }

    /// Passes over tokens that match nothing.
    fn pass_over(&self, ends: &mut [bool]) {
        for (end, token) in self.tokens.iter().enumerate() {
            ends[end + 1] |= ends[end] && matches!(token, Token::Part | Token::All);
        }
    }
}

impl Token {
    /// Returns whether the octet can be the only one.
    fn takes(self, octet: u8) -> bool {
        match self {
            Token::Octet(own) => own == octet,
            Token::One => octet != b'/',
            Token::Part | Token::All => self.goes_on(octet),
        }
    }

    /// Returns whether more may follow the octet.
    fn goes_on(self, octet: u8) -> bool {
        self == Token::All || self == Token::Part && octet != b'/'
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let is_dir = path.ends_with('/');
        let path = path.trim_end_matches('/').as_bytes();
        Excluded::new(&[pattern.to_owned()]).unwrap().has(path, is_dir)
    }

    /// The cases are those of rsync(1); tests/files/judge asks rsync itself.
    #[test]
    fn patterns_match_as_those_of_rsync() {
        for (pattern, yes, no) in [
            ("*.o", &["a.o", "d/e/.o"][..], &["a.oo", "a.o/b"][..]),
            ("/foo", &["foo", "foo/"], &["d/foo", "foo/d"]),
            ("foo/", &["foo/", "d/foo/"], &["foo", "d/foo"]),
            ("a/b", &["a/b", "x/a/b", "x/y/a/b/"], &["a/c/b", "xa/b", "a/b/c"]),
            ("/a/*/c", &["a/b/c"], &["a/c", "a/b/b/c", "x/a/b/c"]),
            ("a/**/c", &["a/b/c", "a/b/b/c", "x/a/b/c"], &["a/c"]),
            ("**/c", &["c", "a/c", "a/b/c"], &["c/d", "ac"]),
            ("/**/c", &["a/c", "a/b/c"], &["c"]),
            ("**c", &["c", "a/bc", "abc"], &["c/d"]),
            ("a**", &["a", "a/b", "x/ab/c"], &["xa", "b"]),
            ("a?c", &["abc", "d/axc"], &["ac", "a/c"]),
            ("*", &["a", "a/b"], &[]),
            ("a*b*c", &["aXbYc", "abc"], &["a/bc", "acb"]),
        ] {
            yes.iter().for_each(|path| assert!(matches(pattern, path), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!matches(pattern, path), "{pattern} {path}"));
        }
    }

    #[test]
    fn what_rsync_understands_otherwise_is_no_pattern() {
        for text in ["", "/", "[a]", "a\\b", "a/***", "- a", "+ a", "!"] {
            assert!(Excluded::new(&[text.to_owned()]).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_longer_than_its_length_for_each_octet() {
        assert!(!matches(&"*a".repeat(500), &"a".repeat(255)));
        assert!(matches(&"**a".repeat(300), &"a/".repeat(400)));
    }
}

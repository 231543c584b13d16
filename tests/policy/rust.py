"""Tells the code of a Rust source file from its comments, strings and tests."""

import re

# What may hide a word, or a mark that seems to begin something: comments, raw strings, strings and
# characters. A lifetime has no second quote behind its first letter.
HIDING = re.compile(
    r"""//[^\n]*
    | (?P<block>/\*)
    | \b[bc]?r(?P<marks>\#*)".*?"(?P=marks)
    | "(?:\\.|[^"\\])*"
    | '(?:\\[^\n]+?|[^\\'\n])'
    """, re.DOTALL | re.VERBOSE)
TESTS = re.compile(
    r"#\[cfg\(test\)\]\s*(?:#\[[^]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*(;|\{)")


def end_of_block(text, start):
    """Returns where the block comment that begins at `start` ends: they nest."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def hiding(text):
    """Yields where each comment, string and character begins and ends."""
    at = 0
    while found := HIDING.search(text, at):
        at = end_of_block(text, found.start()) if found["block"] else found.end()
        yield found.start(), at


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def bare(text):
    """Returns the code alone: all else is spaces, so that lines and columns stay."""
    parts, at = [], 0
    for start, end in hiding(text):
        parts += [text[at:start], blank(text[start:end])]
        at = end
    return "".join(parts) + text[at:]


def comments(text):
    """Returns the part of each line that is comment, by the line's number."""
    found = {}
    for start, end in hiding(text):
        if text.startswith(("//", "/*"), start):
            first = text.count("\n", 0, start) + 1
            for number, part in enumerate(text[start:end].split("\n"), first):
                found.setdefault(number, part)
    return found


def end_of_braces(code, start):
    depth = 0
    for mark in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if mark[0] == "{" else -1
        if depth == 0:
            return mark.end()
    return len(code)


def without_tests(code):
    """Returns bare code in which the modules of tests are spaces, too."""
    while tests := TESTS.search(code):
        end = tests.end() if tests[1] == ";" else end_of_braces(code, tests.end() - 1)
        code = code[:tests.start()] + blank(code[tests.start():end]) + code[end:]
    return code

#!/usr/bin/env python3
"""Checks the prose of the tree, from a checkout's root; `check.py` calls it:

- the first line of a doc comment names its subject: it does not begin with a word of `OPENERS`;
- no comment, docstring or line of prose in a page is longer than 100 columns;
- a SAFETY comment gives a reason, and does not only point at the caller's promise.

`CLEAN` lists for each rule the folders and files that keep it. There, each breach is a fault;
elsewhere breaches are only counted. The lists grow until they name the whole tree.

With `--list RULE [PATH]` it prints every breach of a rule below a path.
"""

import ast
import collections
import io
import itertools
import pathlib
import re
import subprocess
import sys
import tokenize

import rust

root = pathlib.Path(__file__).resolve().parents[2]

# The folders and files that keep the rules. A folder stands for all that is in it.
TREE = [
    "mpa", "ddp", "rdmap", "iwarp", "octets", "rdma", "block", "fault-guard", "rnic", "load", "command", "files", "cli",
    "fuzz", "benches", "tests", "examples", ".ci", "ext-sockets", "sdp-over-rddp", "decode", "stat", "verbs-abi", "verbs-layout", "verbs-device", "gateway", "paths",
    "kernel-patch", "capture", "log", "packaging", "python",
]
PAGES = ["docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
CLEAN = {"opener": TREE, "columns": [*TREE, *PAGES], "safety": TREE}
# Parts of folders above that do not keep them yet.
NOT_YET = {
    "opener": [],
    "columns": [],
    "safety": [],
}

# How a first line must not begin: with a pronoun, with a fragment, or with a bare question word.
# "This", "That", "These" and "Those" pass in front of a noun ("This end rejected the connection"),
# and are refused where they stand for one ("This is ...").
OPENERS = re.compile(
    r"(?:What|Whatever|Whether|Who|Whoever|Whose|Which|Where|When|Why|How|If"
    r"|It|Its|He|She|They|Them|Their|Theirs|We|You|I|Itself|Themselves"
    r"|(?:This|That|These|Those)(?= (?:is|are|was|were|has|have|had|does|do|did|can|may|must|will"
    r"|would|should|that|which|who|of|in|with|for|to|one|ones)\b|[.,:;'])"
    r"|The (?:same|other|others|former|latter|one|ones)"
    r"(?= (?:as|for|of|that|which|with|from|but|in|on|to|way)\b|[.,:;])"
    r"|The rest(?=[.,:;]| of (?:it|them)\b)"
    r"|(?:All|None|One|Some|Any|Both|Neither|Either|Most|Each|Many)"
    r"(?= of (?:it|them|these|those|this|that|which|us)\b|[.,:;])"
    r"|As|And|Or|But|Nor|So|Then|Of|Likewise|Also|Ditto|See|Such|Because|Since|Unless|Until"
    r"|Otherwise|Else|Than)\b"
    r"(?!-)")
COLUMNS = 100
# Pages that a program writes, and texts that quote others to the letter.
PAGES = ("disks", "rdma", "roce", "sdp", "serving", "sockets", "stages")
GENERATED = [*(f"docs/measurements/{page}.md" for page in PAGES), "Cargo.lock"]

# A SAFETY comment of nothing but these words gives no reason.
HOLLOW = re.compile(
    r"(?:as )?(?:(?:was |is )?promised(?: to us)?|(?:our|the|its|this function's) caller(?:'s)?"
    r"(?: promises?| word| says| said| promises (?:so|it|this)| guarantees (?:so|it|this))?"
    r"|see (?:above|there|below)|(?:our|the) contract)[.]?", re.IGNORECASE)

DOC = re.compile(r"\s*(///|//!)(?!/) ?(.*)")


class Breach:
    def __init__(self, path, line, text, public=False):
        self.path, self.line, self.text, self.public = path, line, text, public

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


def items_around(inside, line):
    """Keeps `inside`, the items around a line (indentation, publicity), true behind that line."""
    indent = len(line) - len(line.lstrip())
    while inside[-1][0] >= indent:
        inside.pop()
    if re.match(r"\s*pub (?:unsafe )?(?:enum|trait)\b", line):
        inside.append((indent, True))
    elif line.rstrip().endswith("{"):
        inside.append((indent, False))


def is_public(inside, indent, lines):
    """Tells whether the item that a doc comment is about, the first of the lines, is public."""
    rest = (line for line in lines if not re.match(r"\s*(#\[|\)\]|//)|\s*$", line))
    item = next(rest, "")
    around = next((public for depth, public in reversed(inside) if depth < indent), True)
    return bool(re.match(r"\s*pub ", item)) or (indent > 0 and around and "pub(" not in item)


def first_lines(path, text):
    """Yields the first line of every doc comment: number, text, whether its item is public."""
    lines = text.splitlines()
    inside, before = [(-1, True)], None  # `before` is the kind of doc on the line before
    for at, line in enumerate(lines):
        doc = DOC.match(line)
        if doc and doc[1] == "//!" != before:
            yield at + 1, doc[2], path.name == "lib.rs"
        elif doc and doc[1] != before:
            indent = len(line) - len(line.lstrip())
            yield at + 1, doc[2], is_public(inside, indent, itertools.islice(lines, at, None))
        elif not doc and line.strip():
            items_around(inside, line)
        before = doc and doc[1]


def openers(path, text):
    count, found = 0, []
    if path.suffix == ".rs":
        for line, first, public in first_lines(path, text):
            count += 1
            if OPENERS.match(first):
                said = f"begins with {first.split()[0]!r}: {first}"
                found.append(Breach(path, line, said, public))
    return count, found


def rust_comments(text):
    """Yields the lines with comments of a Rust file, but for code of examples, and the comments."""
    comments, fenced = rust.comments(text), False
    for number, line in enumerate(text.split("\n"), 1):
        doc = DOC.match(line)
        fenced = bool(doc) and fenced != doc[2].startswith("```")
        if number in comments and not fenced:
            yield number, line, comments[number]


def c_comments(text):
    """The lines of C on which a comment stands."""
    within = False
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r'"(\\.|[^"\\])*"', lambda quoted: "_" * len(quoted[0]), line)
        if within or "/*" in bare or "//" in bare:
            yield number, line, line
        end = max(bare.rfind("*/"), -1)
        start = bare.rfind("/*")
        within = start > end if start >= 0 else within and end < 0


def python_comments(text):
    """The comments and docstrings of a Python file."""
    lines = text.splitlines()
    numbers = {token.start[0] for token in tokenize.generate_tokens(io.StringIO(text).readline)
               if token.type == tokenize.COMMENT}
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        is_documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if is_documented and ast.get_docstring(node, clean=False):
            numbers |= set(range(body[0].lineno, body[0].end_lineno + 1))
    for number in sorted(numbers):
        yield number, lines[number - 1], lines[number - 1]


def shell_comments(text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#(?!!)", line):
            yield number, line, line


def page_prose(text):
    """The lines of a page that are neither code nor a table."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ", "<!--")):
            yield number, line, line


def is_excepted(comment):
    """A table's row, or a line that only a link makes long."""
    words = re.sub(r"^\s*(?://[/!]?|/?\*+!?|#)\s*", "", comment)
    link = re.search(r"\S*(?:https?://|\]\()\S+", words)
    is_long = link and (len(link[0]) > 70 or re.match(r"\[[^]]*\]: ", words))
    return words.startswith("|") or bool(is_long)


def comments_of(path, text):
    if path.suffix == ".rs":
        return rust_comments(text)
    if path.suffix in (".c", ".h"):
        return c_comments(text)
    if path.suffix == ".py" or re.match(r"#!.*python", text):
        return python_comments(text)
    if path.suffix == ".sh" or re.match(r"#!.*\b(?:ba)?sh\b", text):
        return shell_comments(text)
    if path.suffix == ".md":
        return page_prose(text)
    return ()


def columns(path, text):
    count, found = 0, []
    if str(path) in GENERATED:
        return count, found
    for number, line, comment in comments_of(path, text):
        count += 1
        if len(line) > COLUMNS and not is_excepted(comment):
            found.append(Breach(path, number, f"{len(line)} columns"))
    return count, found


def safety_reason(first, lines):
    """Returns what a SAFETY comment says: on its first line, and those of the lines behind."""
    words = [first]
    for line in lines:
        more = re.match(r"\s*//(?![/!]) ?(.*)", line)
        if not more or more[1].startswith("SAFETY:"):
            break
        words.append(more[1])
    return " ".join(words).strip()


def safety(path, text):
    count, found = 0, []
    lines = text.splitlines() if path.suffix == ".rs" else []
    for number, line in enumerate(lines, 1):
        if start := re.search(r"// SAFETY: ?(.*)", line):
            count += 1
            said = safety_reason(start[1], itertools.islice(lines, number, None))
            if HOLLOW.fullmatch(said):
                found.append(Breach(path, number, f"gives no reason: {said}"))
    return count, found


RULES = {"opener": openers, "columns": columns, "safety": safety}


def is_below(path, folders):
    around = {str(path), *map(str, path.parents)}  # the last of which is "."
    return any(folder in around for folder in folders)


def files():
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    for name in listed.decode().split("\0"):
        path = root / name
        if not name or path.is_symlink() or not path.is_file() or "corpus" in path.parts:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        yield pathlib.PurePosixPath(name), text


def survey():
    """Of each rule: how many texts it looked at, and the breaches."""
    counts, breaches = dict.fromkeys(RULES, 0), {rule: [] for rule in RULES}
    for path, text in files():
        for rule, look in RULES.items():
            count, found = look(path, text)
            counts[rule] += count
            breaches[rule] += found
    return counts, breaches


def is_clean(rule, path):
    return is_below(path, CLEAN[rule]) and not is_below(path, NOT_YET[rule])


def print_left(rule, count, left):
    """Prints how many breaches of a rule are left outside of the clean folders, and where."""
    places = collections.Counter(breach.path.parts[0] for breach in left)
    public = sum(breach.public for breach in left)
    where = ", ".join(f"{place} {number}" for place, number in sorted(places.items()))
    print(f"prose: {rule}: {len(left)} of {count} outside of the clean folders"
          + (f", {public} of them public" if public else "") + (f": {where}" if where else ""))


def check():
    """Returns the faults, and prints what is left outside of the clean folders."""
    faults = self_test()
    counts, breaches = survey()
    for rule in RULES:
        for folder in CLEAN[rule] + NOT_YET[rule]:
            if not (root / folder).exists():
                faults.append(f"prose.py: no {folder}, which it lists for {rule!r}")
        faults += [str(breach) for breach in breaches[rule] if is_clean(rule, breach.path)]
        left = [breach for breach in breaches[rule] if not is_clean(rule, breach.path)]
        print_left(rule, counts[rule], left)
    return faults


# Texts that each rule must refuse so many times, and texts that it must let pass.
X = "x " * 60
SAMPLES = [
    ("opener", "a.rs", "/// What is sent.\npub struct A;\n\n/// Whether it is.\nfn b() {}\n", 2),
    ("opener", "a.rs", "//! It cuts.\n\n/// The same for reads.\nfn a() {}\n", 2),
    ("opener", "a.rs", "//! A.\n/// This is one.\nfn b() {}\n", 1),
    ("opener", "a.rs", "/// This end's ORD.\nfn a() {}\n/// Returns\n/// what is sent.\n", 0),
    ("opener", "a.rs", "/// One of the queues.\nfn a() {}\n/// One of them.\nfn b() {}\n", 1),
    ("opener", "a.rs", "/// As-is copy.\nfn c() {}\n", 0),
    ("columns", "a.rs", f"// {'x ' * 48}\n// {'x ' * 51}\nlet a = \"//{'x' * 100}\";\n", 1),
    ("columns", "a.rs", f"/// | {X}|\n/// [a]: https://{'x' * 100}\n", 0),
    ("columns", "a.rs", f"/// ```\n/// {X}\n/// ```\n/// {X}\n", 1),
    ("columns", "a.rs", f"/* {X}\n * /* {X}\n {X} */ {X}\n{X} */ let a = '\"'; // {X}\n", 4),
    ("columns", "a.rs", f"let a = \"/*\"; {X};\nlet b = \"*/\";\n/* https://{'x' * 100} */\n", 0),
    ("columns", "a.c", f"/*\n * {X}\n */\nint a{' ' * 100}b;\n", 1),
    ("columns", "a.py", f'"""A.\n\n{X}\n"""\nA = "{X}"\n# {X}\n', 2),
    ("columns", "a.sh", f"# {X}\necho {X}\n", 1),
    ("columns", "a.md", f"{X}\n\n```\n{X}\n```\n\n| {X}|\n", 1),
    ("safety", "a.rs", "// SAFETY: our caller's promise.\na;\n// SAFETY: as the caller says.\n", 2),
    ("safety", "a.rs", "// SAFETY: the caller's\n// promise.\na;\n", 1),
    ("safety", "a.rs", "// SAFETY: the caller's promise: null, or a set.\nb;\n", 0),
]
# First lines that do not name their subject, about items public, public, private and private.
PUBLICITY = """/// What a.
pub enum A {
    /// What b.
    B,
}
/// What c.
enum C {
    /// What d.
    D,
}
"""


def self_test():
    """Returns where the rules do not find what is wrong in `SAMPLES`."""
    faults = []
    for rule, name, text, wanted in SAMPLES:
        found = RULES[rule](pathlib.PurePosixPath(name), text)[1]
        if len(found) != wanted:
            faults.append(f"prose.py: {rule}: {len(found)}, not {wanted} breaches, in {text!r}")
    found = openers(pathlib.PurePosixPath("a.rs"), PUBLICITY)[1]
    if [breach.public for breach in found] != [True, True, False, False]:
        faults.append("prose.py: what is public is not told from what is private")
    return faults


def main():
    if sys.argv[1:2] == ["--list"]:
        for breach in survey()[1][sys.argv[2]]:
            if is_below(breach.path, sys.argv[3:] or ["."]):
                print(breach, "(public)" if breach.public else "")
        return 0
    faults = check()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

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
import io
import pathlib
import re
import subprocess
import sys
import tokenize

root = pathlib.Path(__file__).resolve().parents[2]

# The folders and files that keep the rules. A folder stands for all that is in it.
TREE = [
    "mpa", "ddp", "rdmap", "iwarp", "rdma", "fault-guard", "rnic", "load", "cli", "fuzz", "benches",
    "tests", "examples", ".ci", "ext-sockets",
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
    r"|(?:This|That|These|Those)(?= (?:is|are|was|were|has|have|had|does|do|did|can|may|must|will|would|should"
    r"|that|which|who|of|in|with|for|to|one|ones)\b|[.,:;'])"
    r"|The (?:same|other|others|former|latter|one|ones)(?= (?:as|for|of|that|which|with|from|but|in|on|to|way)\b|[.,:;])"
    r"|The rest(?=[.,:;]| of (?:it|them)\b)"
    r"|(?:All|None|One|Some|Any|Both|Neither|Either|Most|Each|Many)(?= of (?:it|them|these|those|this|that|which|us)\b|[.,:;])"
    r"|As|And|Or|But|Nor|So|Then|Of|Likewise|Also|Ditto|See|Such|Because|Since|Unless|Until|Otherwise|Else|Than)\b"
    r"(?!-)")
COLUMNS = 100
# Pages that a program writes, and texts that quote others to the letter.
GENERATED = ["docs/performance.md", "docs/performance-sockets.md", "Cargo.lock"]

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


def first_lines(path, text):
    """Yields the first line of every doc comment: number, text, whether its item is public."""
    lines = text.splitlines()
    inside = [(-1, True)]  # items around a line: indentation, publicity
    at = 0
    while at < len(lines):
        doc = DOC.match(lines[at])
        indent = len(lines[at]) - len(lines[at].lstrip())
        if not doc:
            if lines[at].strip():
                while inside[-1][0] >= indent:
                    inside.pop()
                if re.match(r"\s*pub (?:unsafe )?(?:enum|trait)\b", lines[at]):
                    inside.append((indent, True))
                elif lines[at].rstrip().endswith("{"):
                    inside.append((indent, False))
            at += 1
            continue
        first, kind = at, doc[1]
        while at < len(lines) and DOC.match(lines[at]) and DOC.match(lines[at])[1] == kind:
            at += 1
        if kind == "//!":
            public = path.name == "lib.rs"
        else:
            item = at
            while item < len(lines) and re.match(r"\s*(#\[|\)\]|//)|\s*$", lines[item]):
                item += 1
            item = lines[item] if item < len(lines) else ""
            around = next((public for depth, public in reversed(inside) if depth < indent), True)
            public = bool(re.match(r"\s*pub ", item)) or (indent > 0 and around and "pub(" not in item)
        yield first + 1, doc[2], public


def openers(path, text):
    count, found = 0, []
    if path.suffix == ".rs":
        for line, first, public in first_lines(path, text):
            count += 1
            if OPENERS.match(first):
                found.append(Breach(path, line, f"begins with {first.split()[0]!r}: {first}", public))
    return count, found


def rust_comments(text):
    """Every line comment of a Rust file, but for the code of examples: number, line, comment."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        doc = DOC.match(line)
        fenced = bool(doc) and fenced != doc[2].startswith("```")
        if fenced:
            continue
        bare = re.sub(r'"(\\.|[^"\\])*"', lambda quoted: "_" * len(quoted[0]), line)
        if "//" in bare:
            yield number, line, line[bare.index("//"):]


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
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
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
    words = re.sub(r"^\s*(?://[/!]?|\*|#)\s*", "", comment)
    link = re.search(r"\S*(?:https?://|\]\()\S+", words)
    return words.startswith("|") or bool(link and (len(link[0]) > 70 or re.match(r"\[[^]]*\]: ", words)))


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


def safety(path, text):
    count, found = 0, []
    if path.suffix != ".rs":
        return count, found
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        start = re.search(r"// SAFETY: ?(.*)", line)
        if not start:
            continue
        count += 1
        words = [start[1]]
        for more in lines[number:]:
            more = re.match(r"\s*//(?![/!]) ?(.*)", more)
            if not more or more[1].startswith("SAFETY:"):
                break
            words.append(more[1])
        said = " ".join(words).strip()
        if HOLLOW.fullmatch(said):
            found.append(Breach(path, number, f"gives no reason: {said}"))
    return count, found


RULES = {"opener": openers, "columns": columns, "safety": safety}


def is_below(path, folders):
    return any(folder == "." or path == pathlib.PurePosixPath(folder) or pathlib.PurePosixPath(folder) in path.parents
               for folder in folders)


def files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, stdout=subprocess.PIPE).stdout
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


def check():
    """Returns the faults, and prints what is left outside of the clean folders."""
    faults = self_test()
    counts, breaches = survey()
    for rule in RULES:
        for folder in CLEAN[rule] + NOT_YET[rule]:
            if not (root / folder).exists():
                faults.append(f"tests/policy/prose.py: no {folder}, which it lists for {rule!r}")
        outside = []
        for breach in breaches[rule]:
            if is_below(breach.path, CLEAN[rule]) and not is_below(breach.path, NOT_YET[rule]):
                faults.append(str(breach))
            else:
                outside.append(breach)
        places = {}
        for breach in outside:
            places.setdefault(breach.path.parts[0], []).append(breach)
        where = ", ".join(f"{place} {len(found)}" for place, found in sorted(places.items()))
        public = sum(breach.public for breach in outside)
        print(f"prose: {rule}: {len(outside)} of {counts[rule]} outside of the clean folders"
              + (f", {public} of them public" if public else "") + (f": {where}" if where else ""))
    return faults


# Texts that each rule must refuse so many times, and texts that it must let pass.
SAMPLES = [
    ("opener", "a.rs", "/// What is sent.\npub struct A;\n\n/// Whether it is.\nfn b() {}\n", 2),
    ("opener", "a.rs", "//! It cuts.\n\n/// The same for reads.\nfn a() {}\n/// This is one.\nfn b() {}\n", 3),
    ("opener", "a.rs", "/// This end's ORD.\nfn a() {}\n/// Returns\n/// what is sent.\nfn b() {}\n", 0),
    ("opener", "a.rs", "/// One of the queues.\nfn a() {}\n/// One of them.\nfn b() {}\n/// As-is copy.\nfn c() {}\n", 1),
    ("columns", "a.rs", "// " + "x " * 48 + "\n// " + "x " * 51 + "\nlet a = \"//" + "x" * 100 + "\";\n", 1),
    ("columns", "a.rs", "/// | " + "x " * 60 + "|\n/// [a]: https://" + "x" * 100 + "\n", 0),
    ("columns", "a.rs", "/// ```\n/// " + "x " * 60 + "\n/// ```\n/// " + "x " * 60 + "\n", 1),
    ("columns", "a.c", "/*\n * " + "x " * 60 + "\n */\nint a" + " " * 100 + "b;\n", 1),
    ("columns", "a.py", '"""A.\n\n' + "x " * 60 + '\n"""\nA = "' + "x" * 100 + '"\n# ' + "x " * 60 + "\n", 2),
    ("columns", "a.sh", "# " + "x " * 60 + "\necho " + "x " * 60 + "\n", 1),
    ("columns", "a.md", "x " * 60 + "\n\n```\n" + "x " * 60 + "\n```\n\n| " + "x " * 60 + "|\n", 1),
    ("safety", "a.rs", "// SAFETY: our caller's promise.\na;\n// SAFETY: as the caller says.\nb;\n", 2),
    ("safety", "a.rs", "// SAFETY: the caller's\n// promise.\na;\n// SAFETY: the caller's promise: null, or a set.\nb;\n", 1),
]


def self_test():
    """Returns where the rules do not find what is wrong in `SAMPLES`."""
    faults = []
    for rule, name, text, wanted in SAMPLES:
        found = RULES[rule](pathlib.PurePosixPath(name), text)[1]
        if len(found) != wanted:
            faults.append(f"tests/policy/prose.py: {rule} finds {len(found)} breaches, not {wanted}, in {text!r}")
    kinds = "/// What a.\npub enum A {\n    /// What b.\n    B,\n}\n/// What c.\nenum C {\n    /// What d.\n    D,\n}\n"
    if [breach.public for breach in openers(pathlib.PurePosixPath("a.rs"), kinds)[1]] != [True, True, False, False]:
        faults.append("tests/policy/prose.py: what is public is not told from what is private")
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

//! Build script: makes of the tables in `symbols/` the names that the library exports, each with
//! its version, and has the linker define the versions.
//!
//! A version of a symbol is a directive of the assembler (`.symver`), which names a label in the
//! same piece of assembly: so each name is a label that jumps to the Rust function. The versions
//! themselves are nodes of a version script of our own. rustc passes another one, without a node;
//! lld takes both, GNU ld does not, so the linking is done by the lld that comes with Rust. Without
//! it the library is built all the same, so that the workspace is, but exports nothing.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for name in ["build.rs", PUBLIC, PRIVATE] {
        println!("cargo::rerun-if-changed={name}");
    }
    let public = nodes(&read(PUBLIC));
    let private = Private::parse(&read(PRIVATE));
    let out = PathBuf::from(variable("OUT_DIR"));
    let lld = lld();
    write(&out.join("exports.rs"), &exports(&public, &private, lld.is_some()));
    write(&out.join("fallible.rs"), &fallible(&public));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librddp_verbs.so");
    // Calls among its own functions do not come to a program's functions of the same names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Its threads and handlers outlive a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let Some(lld) = lld else {
        return println!("cargo::warning={WITHOUT}");
    };
    let script = out.join("versions.map");
    write(&script, &versions(&public, &private));
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo::rustc-cdylib-link-arg=-B{}", lld.display());
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
}

const WITHOUT: &str = "librddp_verbs.so exports nothing: it needs the ld.lld of a Rust by rustup, which this \
                       one does not have";
const PUBLIC: &str = "symbols/public.txt";
const PRIVATE: &str = "symbols/private.txt";

/// A version node and its symbols.
struct Node {
    name: String,
    symbols: Vec<Symbol>,
}

struct Symbol {
    name: String,
    /// The way in which an unfinished function fails.
    unfinished: Option<String>,
    /// The way in which a finished one may.
    may: Option<String>,
}

fn nodes(table: &str) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for line in lines(table) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        if line.starts_with(' ') {
            let node = nodes.last_mut().unwrap_or_else(|| panic!("{PUBLIC}: {name} has no node"));
            let (unfinished, way) = (words.next().map(str::to_owned), words.next().map(str::to_owned));
            node.symbols.push(Symbol { name, unfinished: unfinished.filter(|_| way.is_none()), may: way });
        } else {
            nodes.push(Node { name, symbols: Vec::new() });
        }
    }
    nodes
}

/// The private nodes by number, and the names in each: `*` stands for the node's number.
struct Private {
    numbers: Vec<String>,
    names: Vec<(String, Option<String>)>,
}

impl Private {
    fn parse(table: &str) -> Self {
        let mut private = Private { numbers: Vec::new(), names: Vec::new() };
        for line in lines(table) {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().unwrap_or_default() {
                first if first == "nodes" => private.numbers = words.collect(),
                name => private.names.push((name, words.next())),
            }
        }
        private
    }
}

/// Returns Rust code that defines all labels, with their versions or without.
fn exports(public: &[Node], private: &Private, has_versions: bool) -> String {
    let mut code = Labels { code: String::new(), has_versions };
    for node in public {
        for Symbol { name, unfinished, may } in &node.symbols {
            // rdma-core exports this one for old providers only, so that nothing new links to it.
            let at = if name == "ibv_register_driver" { "@" } else { "@@" };
            let function = match unfinished.as_deref() {
                Some("nothing") => "crate::c::unfinished::nothing".to_owned(),
                Some(way) => code.unfinished(name, way),
                None => may.as_ref().map_or(format!("crate::c::entries::{name}"), |way| code.gate(name, way)),
            };
            code.label(&function, name, &[format!("{name}{at}{}", node.name)]);
        }
    }
    for (name, what) in &private.names {
        let versions: Vec<_> =
            private.numbers.iter().map(|n| format!("{}@IBVERBS_PRIVATE_{n}", name.replace('*', n))).collect();
        let name = format!("private_{}", name.replace('*', "n"));
        match what.as_deref() {
            Some("octet") => code.octet(&name, &versions),
            Some(_) => code.label("crate::c::entries::ibv_query_gid_type", &name, &versions),
            None => code.label("crate::c::unfinished::nothing", &name, &versions),
        }
    }
    code.code
}

/// Rust code that defines labels.
struct Labels {
    code: String,
    has_versions: bool,
}

impl Labels {
    /// Defines a label that jumps to a function, under these versions.
    fn label(&mut self, function: &str, name: &str, versions: &[String]) {
        let jump = if variable("CARGO_CFG_TARGET_ARCH") == "aarch64" { "b" } else { "jmp" };
        let label = format!("rddp_export_{name}");
        let body = format!(
            ".text\n.p2align 4\n.globl {label}\n.type {label}, %function\n{label}: {jump} {{f}}\n.size {label}, . - {label}"
        );
        self.define(&body, &label, versions, &format!(", f = sym {function}"));
    }

    /// Defines a function that fails in one of the ways of `c::unfinished`, and knows its name.
    fn unfinished(&mut self, name: &str, way: &str) -> String {
        let result = match way {
            "null" => "*mut core::ffi::c_void",
            "number" => "core::ffi::c_int",
            _ => "isize",
        };
        let function = format!("unfinished_{}", name.trim_start_matches('_'));
        let body = format!("crate::c::unfinished::{way}(\"{name}\")");
        let _ = writeln!(self.code, "extern \"C\" fn {function}() -> {result} {{ {body} }}");
        function
    }

    /// Defines a function that fails where a rule says so, and else goes on to the finished one.
    fn gate(&mut self, name: &str, way: &str) -> String {
        let function = format!("gate_{}", verb(name));
        let _ =
            writeln!(self.code, "crate::c::gate::gate! {{ {function} = {name}, \"{}\" {way} }}", verb(name));
        function
    }

    /// Defines a label of one octet, 0, under these versions.
    fn octet(&mut self, name: &str, versions: &[String]) {
        let label = format!("rddp_export_{name}");
        let body = format!(
            ".data\n.globl {label}\n.type {label}, %object\n{label}: .byte 0\n.size {label}, 1\n.text"
        );
        self.define(&body, &label, versions, "");
    }

    fn define(&mut self, body: &str, label: &str, versions: &[String], operands: &str) {
        let versions = if self.has_versions { versions } else { &[] };
        let versions: String =
            versions.iter().map(|version| format!("\n.symver {label}, {version}")).collect();
        let _ = writeln!(self.code, "core::arch::global_asm!(\"{body}{versions}\"{operands});");
    }
}

/// Returns Rust code for the names of finished functions that may fail.
fn fallible(public: &[Node]) -> String {
    let symbols = public.iter().flat_map(|node| &node.symbols);
    let names: Vec<_> =
        symbols.filter(|symbol| symbol.may.is_some()).map(|symbol| verb(&symbol.name)).collect();
    format!("{names:?}")
}

/// Returns the name by which programs know a function: some are called by inline ones.
fn verb(symbol: &str) -> &str {
    symbol.trim_start_matches('_')
}

/// Returns a version script that defines all nodes, with no symbols in them.
fn versions(public: &[Node], private: &Private) -> String {
    let mut script = String::new();
    let mut before: Option<&str> = None;
    for Node { name, .. } in public {
        let library = |node: &str| node.split('_').next().map(str::to_owned);
        let parent = before.filter(|before| library(before) == library(name)).unwrap_or_default();
        let _ = writeln!(script, "{name} {{ }} {parent};");
        before = Some(name);
    }
    for number in &private.numbers {
        let _ = writeln!(script, "IBVERBS_PRIVATE_{number} {{ }};");
    }
    script
}

/// Returns the folder in which the C compiler finds the `ld.lld` that comes with Rust.
fn lld() -> Option<PathBuf> {
    let said = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    let folder = sysroot.join("lib/rustlib").join(variable("HOST")).join("bin/gcc-ld");
    folder.join("ld.lld").exists().then_some(folder)
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

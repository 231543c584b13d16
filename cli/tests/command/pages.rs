//! Man pages and completions.

use std::fs;

use crate::program::run;

#[test]
fn each_command_has_a_man_page_and_completions() {
    let scratch = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap();
    run(&["pages", scratch.path().to_str().unwrap()]).ok();
    for command in ["perf", "serve", "run", "doctor"] {
        let page = read(&format!("man1/rddp-{command}.1"));
        for text in [
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH OPTIONS",
            ".SH EXAMPLES",
            ".SH \"EXIT STATUS\"",
            ".SH ENVIRONMENT",
        ] {
            assert!(page.contains(text), "{command}: nothing of {text:?} in {page}");
        }
        for shell in ["bash/rddp.bash", "zsh/_rddp", "fish/rddp.fish"] {
            let completions = read(shell);
            assert!(completions.contains(command), "{shell}: {command}");
            assert!(!completions.contains("demo-passive"), "{shell}");
        }
    }
    assert!(read("man1/rddp-serve.1").contains("\\-\\-writable"));
    assert!(
        read("man1/rddp-perf-client.1")
            .ends_with("rddp\\-perf(1), rddp\\-perf\\-server(1), rddp\\-perf\\-local(1)\n")
    );
    assert!(read("man1/rddp-ls.1").contains("rddp(1), "));
    for (command, has) in [("run", true), ("serve", false)] {
        assert_eq!(read(&format!("man1/rddp-{command}.1")).contains("RDDP_FAMILY"), has, "{command}");
    }
    for hidden in ["demo-passive", "pages", "help", "perf-help"] {
        assert!(!scratch.path().join(format!("man1/rddp-{hidden}.1")).exists(), "{hidden}");
    }
}

//! Any text is read or refused, without a panic.

use proptest::prelude::*;

use super::read;

/// Pieces of configurations, which random text hardly contains.
const PIECES: [&str; 40] = [
    "scrape_configs:\n",
    "- job_name: a\n",
    "  scrape_interval: 5s\n",
    "  static_configs:\n",
    "  - targets: [a:1]\n",
    "    labels: {a: b}\n",
    "  relabel_configs:\n",
    "  - action: keep\n",
    "    regex: (.*)\n",
    "global:\n",
    "  scrape_timeout: 1ms\n",
    "servers:\n",
    "- url: http://a\n",
    "spool:\n",
    "  min_free: 5%\n",
    "receive:\n",
    "  tenant: {}\n",
    "  profiling_config:\n",
    "    pprof_config:\n",
    "      memory: {seconds: 3}\n",
    "[",
    "]",
    "{",
    "}",
    ": ",
    ",",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n  x\n",
    "null",
    "~",
    "\"",
    "'",
    "\t",
    "  ",
    "\n",
    "é",
    "%",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        check(&text);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        check(&pieces.concat());
    }
}

#[test]
fn aliases_of_a_large_text_are_refused() {
    let aliases = vec!["*a"; 300].join(", ");
    let text = format!("scrape_configs:\n- job_name: &a {}\n  files: [{aliases}]\n", "x".repeat(1 << 20));
    let refused = read(&text).unwrap_err().errors;
    assert!(refused[0].message.starts_with("the text is not YAML"), "{refused:.300?}");
}

/// Asserts that a result has what it must have.
fn check(text: &str) {
    match read(text) {
        Ok(config) => assert!(!config.servers.is_empty()),
        Err(errors) => {
            assert!(!errors.errors.is_empty());
            for error in &errors.errors {
                assert!(error.position.line >= 1 && error.position.column >= 1 && !error.message.is_empty());
            }
        }
    }
}

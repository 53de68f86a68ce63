//! Manual pages and completions, as packagers make them.

use std::fs;
use std::process::Command;

/// The verbs that `extant --help` lists.
fn verbs() -> Vec<String> {
    let help = crate::common::succeed(std::path::Path::new("."), &["--help"]);
    let start = help.find("Commands:\n").expect("there is a list") + "Commands:\n".len();
    let lines = help[start..].lines().take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&verb| verb != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_verb_has_a_page_and_no_page_is_left_over() {
    let dir = tempfile::tempdir().unwrap();
    crate::common::succeed(dir.path(), &["man", "."]);
    let mut expected: Vec<String> =
        verbs().iter().map(|verb| format!("extant-{verb}.1")).chain(["extant.1".into()]).collect();
    expected.sort();
    let mut found: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, expected);
    for page in &found {
        let text = fs::read_to_string(dir.path().join(page)).unwrap();
        for part in
            [".TH extant", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH \"EXIT STATUS\""]
        {
            assert!(text.contains(part), "{page}: no {part}:\n{text}");
        }
        let examples = page == "extant.1" || text.contains(".SH EXAMPLES");
        assert!(examples, "{page}: no examples");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("taken"), "a file").unwrap();
    let (code, out, err) = crate::common::run(dir.path(), &["man", "taken"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("taken: cannot make"), "{err}");
    crate::common::succeed(dir.path(), &["man", "share/man/man1"]);
    assert!(dir.path().join("share/man/man1/extant.1").exists());
}

#[test]
fn completions_of_every_shell_contain_every_verb() {
    let verbs = verbs();
    for shell in ["bash", "zsh", "fish"] {
        let script = crate::common::succeed(std::path::Path::new("."), &["completions", shell]);
        for verb in &verbs {
            assert!(script.contains(verb.as_str()), "{shell}: no {verb}");
        }
    }
}

#[test]
fn bash_completes_verbs_and_options() {
    let dir = tempfile::tempdir().unwrap();
    let script = crate::common::succeed(dir.path(), &["completions", "bash"]);
    fs::write(dir.path().join("extant.bash"), script).unwrap();
    let ask = |words: &str, index: u32| {
        let code = format!(
            "source ./extant.bash; COMP_WORDS=({words}); COMP_CWORD={index}; \
             _extant extant \"${{COMP_WORDS[{index}]}}\" \"${{COMP_WORDS[{index} - 1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let out = Command::new("bash").current_dir(dir.path()).args(["-c", &code]).output();
        String::from_utf8(out.expect("bash is there").stdout).unwrap()
    };
    assert_eq!(ask("extant che", 1), "check\n");
    // The same as in the help: without verbs that only packagers use.
    assert_eq!(ask("extant comp", 1), "\n");
    let listed = ask("extant ''", 1);
    let listed: Vec<&str> = listed.lines().filter(|word| !word.starts_with('-')).collect();
    assert_eq!(listed, verbs().iter().map(String::as_str).chain(["help"]).collect::<Vec<_>>());
    assert_eq!(ask("extant check --no-r", 2), "--no-replay\n");
}

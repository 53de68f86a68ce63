//! The blocks of a chapter.
//!
//! ```text
//!   console        $ COMMAND, what it prints; `…` matches anything, alone in a line any lines
//!   sh             a script
//!   LANG file=NAME a file that later commands use
//!   rust           a doc test (build.rs)
//!   text           no example
//! ```
//! After the language, `tested-by=PATH` names the test that runs the block instead.

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its language.
    pub language: String,
    /// The words after the language.
    pub info: Vec<String>,
    /// The line of the chapter, from 0, at which its content begins.
    pub line: usize,
    /// Its content.
    pub lines: Vec<String>,
}

impl Block {
    /// The value of `NAME=VALUE` after the language.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A command of a console, and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As the reader types it.
    pub typed: String,
    /// The line of the chapter at which the output begins.
    pub line: usize,
    /// Lines of the output.
    pub prints: Vec<String>,
}

/// All blocks of a chapter.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.lines.push(line.to_owned()),
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let (info, lines) = (words.collect(), Vec::new());
                open = Some(Block { language, info, line: number + 1, lines });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// The commands of a console. A command continues after a backslash, and in lines that begin with
/// `> `.
pub fn commands(block: &Block) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (number, text) in block.lines.iter().enumerate() {
        let line = block.line + number + 1;
        match (text.strip_prefix("$ "), commands.last_mut()) {
            (Some(typed), _) => {
                commands.push(Command { typed: typed.to_owned(), line, prints: Vec::new() });
            }
            (None, Some(last)) if last.prints.is_empty() && goes_on(last, text) => {
                last.typed.push('\n');
                last.typed.push_str(text.strip_prefix("> ").unwrap_or(text));
                last.line = line;
            }
            (None, Some(last)) => last.prints.push(text.clone()),
            (None, None) => panic!("line {line}: a console begins with a command"),
        }
    }
    commands
}

fn goes_on(command: &Command, text: &str) -> bool {
    command.typed.ends_with('\\') || text.starts_with("> ")
}

/// Whether a command printed what the guide shows.
pub fn agrees(shown: &[String], printed: &[String]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "…" => {
            (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..]))
        }
        (Some((a, shown)), Some((b, printed))) => line_agrees(a, b) && agrees(shown, printed),
        _ => false,
    }
}

fn line_agrees(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split('…');
    let first = parts.next().expect("there is one part at least");
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn blocks_and_commands_are_found_by_line() {
        let text = "x\n```console\n$ a \\\n  b\n1\n$ c\n```\n```c file=a.c\nint;\n```\n";
        let found = blocks(text);
        assert_eq!((found.len(), found[0].line, found[1].value("file")), (2, 2, Some("a.c")));
        let typed = commands(&found[0]);
        assert_eq!((typed[0].typed.as_str(), typed[0].line), ("a \\\n  b", 4));
        assert_eq!((&typed[0].prints, typed[1].line), (&lines("1"), 6));
    }

    #[test]
    fn dots_stand_for_anything() {
        for (shown, printed, same) in [
            ("a … c", "a b c", true),
            ("a … c", "a b d", false),
            ("…\nc", "a\nb\nc", true),
            ("…\nc", "a\nb", false),
            ("a", "a\nb", false),
            ("a\n…", "a", true),
            ("… x … y", "1 x 2 y", true),
        ] {
            assert_eq!(agrees(&lines(shown), &lines(printed)), same, "{shown:?} {printed:?}");
        }
    }
}

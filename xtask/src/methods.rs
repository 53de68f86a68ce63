//! Counts the methods of each type: the functions in all its `impl` blocks of a crate, without
//! those of traits and without tests.
//!
//! ```text
//!   impl Space { pub fn allocate(…) … }       in space/blocks.rs      ┐
//!   impl Space { fn search(…) … }             in space/group_search.rs ┴─► crates/fs Space: 2
//! ```
//!
//! A type with more methods than [`LIMIT`] is several components in one, and the check fails. Types
//! of one name that several files of a crate declare, as the verbs' `Args`, are counted one by one.

use std::collections::{BTreeMap, BTreeSet};

/// The most methods that a type may have.
const LIMIT: usize = 80;

/// How many types a report lists.
const REPORTED: usize = 15;

/// Methods by crate and type.
pub type Counts = BTreeMap<(String, String), usize>;

/// Checks the numbers of methods; with `report`, prints the types with the most.
pub fn check(counts: &Counts, report: bool) -> Result<(), String> {
    let mut sorted: Vec<(&(String, String), usize)> =
        counts.iter().map(|(name, count)| (name, *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    if report {
        println!("types with the most methods:");
        for ((krate, name), count) in sorted.iter().take(REPORTED) {
            println!("  {count:4} {krate} {name}");
        }
    }
    let wrong = wrong(counts);
    if wrong.is_empty() {
        println!("== methods: ok, no type has more than {LIMIT}");
        return Ok(());
    }
    Err(format!("methods (xtask/src/methods.rs):\n  {}", wrong.join("\n  ")))
}

/// The types above the limit.
fn wrong(counts: &Counts) -> Vec<String> {
    let above = counts.iter().filter(|(_, count)| **count > LIMIT);
    above
        .map(|((krate, name), count)| {
            format!("{krate}: {name} has {count} methods, the limit is {LIMIT}")
        })
        .collect()
}

/// Adds the methods in the source files of `krate`, each with its path, to `counts`.
pub fn count(krate: &str, files: &[(&str, &str)], counts: &mut Counts) {
    let (mut declared, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for (_, text) in files {
        let names = declared_types(text);
        repeated.extend(names.intersection(&declared).copied());
        declared.extend(names);
    }
    for (path, text) in files {
        count_file(krate, path, text, &repeated, counts);
    }
}

/// The types that a file declares.
fn declared_types(text: &str) -> BTreeSet<&str> {
    let tokens = without_tests(&tokens(text));
    let pairs = tokens.windows(2).filter(|pair| matches!(pair[0], "struct" | "enum" | "union"));
    pairs.map(|pair| pair[1]).collect()
}

/// Adds the methods of a file. The types with `repeated` names are those that it declares.
fn count_file(krate: &str, path: &str, text: &str, repeated: &BTreeSet<&str>, counts: &mut Counts) {
    let tokens = without_tests(&tokens(text));
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        let is_item = before.is_none_or(|before| ["}", ";", "{", "]", "unsafe"].contains(&before));
        if tokens[at] != "impl" || !is_item {
            at += 1;
            continue;
        }
        let Some(open) = tokens[at..].iter().position(|token| *token == "{") else { return };
        let (header, body) = (&tokens[at + 1..at + open], at + open);
        let end = end_of_braces(&tokens, body);
        if let Some(name) = type_of(header) {
            let methods = methods(&tokens[body..end]);
            let name = match repeated.contains(name) {
                true => format!("{name} of {path}"),
                false => name.to_owned(),
            };
            *counts.entry((krate.to_owned(), name)).or_default() += methods;
        }
        at = end;
    }
}

/// The functions directly in a body, which begins with its brace.
fn methods(body: &[&str]) -> usize {
    let (mut depth, mut count) = (0_usize, 0);
    for (at, token) in body.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            // Not a function pointer, `fn(…)`.
            "fn" if depth == 1 && body.get(at + 1) != Some(&"(") => count += 1,
            _ => {}
        }
    }
    count
}

/// The type of an `impl` block without a trait, from the tokens between `impl` and the brace.
fn type_of<'a>(header: &[&'a str]) -> Option<&'a str> {
    // The parameters of the block: `<'a, T: Trait>`.
    let mut path = header;
    if header.first() == Some(&"<") {
        let mut depth = 0_usize;
        let end = header.iter().position(|token| {
            match *token {
                "<" => depth += 1,
                ">" => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        path = &header[end + 1..];
    }
    let is_for_trait = |at: usize| path[at] == "for" && path.get(at + 1) != Some(&"<");
    let bounds = path.iter().position(|token| *token == "where").unwrap_or(path.len());
    if (0..bounds).any(is_for_trait) {
        return None;
    }
    let is_name = |token: &&&str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let end = path.iter().position(|token| ["<", "where"].contains(token)).unwrap_or(path.len());
    path[..end].iter().rfind(is_name).copied()
}

/// The place after the brace that closes the one at `open`.
fn end_of_braces(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
const ITEMS: [&str; 15] = [
    "pub",
    "fn",
    "impl",
    "mod",
    "struct",
    "enum",
    "const",
    "static",
    "type",
    "trait",
    "unsafe",
    "async",
    "use",
    "extern",
    "macro_rules",
];

/// The tokens without the items that are marked as `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&TEST) {
            at = end_of_item(tokens, at + TEST.len());
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The place after the item at `at`, perhaps with attributes. What is no item has no end: a field,
/// or a statement.
fn end_of_item(tokens: &[&str], mut at: usize) -> usize {
    let mut depth = 0_usize;
    let start = at;
    while let Some(token) = tokens.get(at) {
        match *token {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "#" => {}
            "{" if depth == 0 => return end_of_braces(tokens, at),
            ";" if depth == 0 => return at + 1,
            other if depth == 0 && at == start && !ITEMS.contains(&other) => return start,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Words, `->`, and other characters one by one. Without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = literal(rest).unwrap_or_else(|| {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("->") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            if !first.is_whitespace() {
                tokens.push(&rest[..length]);
            }
            length
        });
        rest = &rest[length..];
    }
    tokens
}

/// The length of a comment, a text, a character or a lifetime at the start of `rest`.
fn literal(rest: &str) -> Option<usize> {
    let until = |end: &str, from: usize| {
        rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return Some(until("\n", 0));
    }
    if rest.starts_with("/*") {
        return Some(until("*/", 2));
    }
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'));
    if let Some(raw) = raw {
        let quoted = raw.trim_start_matches('#');
        if quoted.starts_with('"') {
            let marks = raw.len() - quoted.len();
            let end = format!("\"{}", "#".repeat(marks));
            return Some(until(&end, rest.len() - quoted.len() + 1));
        }
    }
    let quote = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let prefix = rest.len() - quote.len();
    if let Some(inner) = quote.strip_prefix('"') {
        return Some(prefix + 1 + end_of_quote(inner, '"'));
    }
    let inner = quote.strip_prefix('\'')?;
    let mut chars = inner.chars();
    match (chars.next()?, chars.next()) {
        ('\\', _) | (_, Some('\'')) => Some(prefix + 1 + end_of_quote(inner, '\'')),
        _ => {
            let word = inner.find(|c: char| !c.is_alphanumeric() && c != '_');
            Some(prefix + 1 + word.unwrap_or(inner.len()))
        }
    }
}

/// The length up to and including the quote that ends a literal.
fn end_of_quote(inner: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    inner.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<(String, usize)> {
        counted_in(&[("a.rs", text)])
    }

    fn counted_in(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let mut counts = Counts::new();
        count("c", files, &mut counts);
        counts.into_iter().map(|((_, name), count)| (name, count)).collect()
    }

    #[test]
    fn all_blocks_of_a_type_count_and_traits_do_not() {
        let text = r##"
            impl Volume { pub fn a(&self) -> impl Fn() { || { fn inner() {} } } const fn b() {} }
            unsafe impl Send for Volume { fn hidden() {} }
            impl<'a, F: Fn(u8) -> u8> super::Table<'a, F> where F: for<'b> Tr<'b> { fn c(f: fn(u8)) {} }
            impl<T> fmt::Display for Table<T> { fn fmt() {} }
            fn free(x: impl Clone) -> impl Clone { x }
            impl Volume { /* fn no() */ fn d() { let x = ("} fn e() {", '{', '\'', r#"" { "#); } // fn
                const CALL: fn() = d; }
        "##;
        assert_eq!(counted(text), [("Table".to_owned(), 1), ("Volume".to_owned(), 3)]);
    }

    #[test]
    fn tests_do_not_count() {
        let text = "
            struct A { #[cfg(test)] seen: [u8; 4], x: u8 }
            impl A { fn a() {} #[cfg(test)] #[allow(x)] pub fn b() -> [u8; 4] { [0; 4] } fn c() {} }
            #[cfg(test)] impl A { fn d() {} }
            #[cfg(test)] mod tests;
            #[cfg(test)] mod other { impl A { fn e() {} } }
        ";
        assert_eq!(counted(text), [("A".to_owned(), 2)]);
    }

    #[test]
    fn types_of_one_name_are_counted_one_by_one() {
        let a = "struct Args; impl Args { fn a() {} } struct One; impl One { fn b() {} }";
        let b = "struct Args; impl Args { fn a() {} fn b() {} } impl One { fn c() {} }";
        let name = |of: &str, count| (of.to_owned(), count);
        let want = [name("Args of a.rs", 1), name("Args of b.rs", 2), name("One", 2)];
        assert_eq!(counted_in(&[("a.rs", a), ("b.rs", b)]), want);
    }

    #[test]
    fn types_above_the_limit_are_named() {
        let of = |count| Counts::from([(("c".to_owned(), "A".to_owned()), count)]);
        assert!(wrong(&of(LIMIT)).is_empty());
        assert_eq!(wrong(&of(LIMIT + 1)).len(), 1);
    }
}

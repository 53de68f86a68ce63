//! The test programs that cargo builds, and what each one needs to run.
//!
//! ```text
//!   cargo test --no-run --message-format=json ──► a JSON message a line ──┐
//!   cargo metadata ──► fields of each package ────────────────────────────┴──► Program …
//! ```
//!
//! A program runs as `cargo test` runs it: in the directory of its package, with the same
//! variables. A message of an unknown kind, or one without an expected field, is an error, so that
//! no program is omitted without notice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{LIMIT, cargo, limited};

/// A test program.
pub struct Program {
    /// Package and target: `extant-cli it`, or `extant-cli (bin)` for the unit tests of a binary.
    pub name: String,
    pub executable: PathBuf,
    /// Directory of its package.
    pub dir: PathBuf,
    pub env: BTreeMap<String, OsString>,
}

/// Builds the test programs of the workspace, or of some packages of it.
pub fn build(packages: &[&str]) -> Result<Vec<Program>, String> {
    let mut command = limited(cargo(), LIMIT);
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(selection(packages)).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cargo: {e}"))?;
    let stdout = child.stdout.take().ok_or("cargo has no output")?;
    let mut built = Built::default();
    let mut refused = None;
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|e| format!("cargo: {e}"))?;
        if let Err(error) = built.add(&line) {
            refused.get_or_insert(error);
        }
    }
    let status = child.wait().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("the tests do not build ({status})"));
    }
    if let Some(error) = refused {
        return Err(error);
    }
    built.programs(&packages_of(&metadata()?)?)
}

/// Cargo's arguments for some packages, or for all.
pub fn selection<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    match packages {
        [] => vec!["--workspace"],
        some => some.iter().flat_map(|package| ["--package", package]).collect(),
    }
}

fn metadata() -> Result<Value, String> {
    let mut command = Command::new(cargo());
    let out = command.args(["metadata", "--format-version", "1", "--no-deps"]).output();
    let out = out.map_err(|e| format!("cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// A package: its name, and the variables that cargo sets from its manifest.
struct Package {
    name: String,
    env: BTreeMap<String, OsString>,
}

/// The packages of the workspace by their ids.
fn packages_of(metadata: &Value) -> Result<BTreeMap<String, Package>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let mut found = BTreeMap::new();
    for package in packages {
        let field = |key: &str| package[key].as_str().unwrap_or_default();
        let (version, pre) = match field("version").split_once('-') {
            Some((version, pre)) => (version, pre.split('+').next().unwrap_or_default()),
            None => (field("version").split('+').next().unwrap_or_default(), ""),
        };
        let mut numbers = version.split('.');
        let mut number = || numbers.next().unwrap_or_default().to_owned();
        let authors: Vec<&str> =
            package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let env = [
            ("CARGO_MANIFEST_PATH", text(package, "manifest_path")?),
            ("CARGO_PKG_NAME", text(package, "name")?),
            ("CARGO_PKG_VERSION", text(package, "version")?),
            ("CARGO_PKG_VERSION_MAJOR", number()),
            ("CARGO_PKG_VERSION_MINOR", number()),
            ("CARGO_PKG_VERSION_PATCH", number()),
            ("CARGO_PKG_VERSION_PRE", pre.to_owned()),
            ("CARGO_PKG_AUTHORS", authors.join(":")),
            ("CARGO_PKG_DESCRIPTION", field("description").to_owned()),
            ("CARGO_PKG_HOMEPAGE", field("homepage").to_owned()),
            ("CARGO_PKG_REPOSITORY", field("repository").to_owned()),
            ("CARGO_PKG_LICENSE", field("license").to_owned()),
            ("CARGO_PKG_LICENSE_FILE", field("license_file").to_owned()),
            ("CARGO_PKG_README", field("readme").to_owned()),
            ("CARGO_PKG_RUST_VERSION", field("rust_version").to_owned()),
        ];
        let env = env.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        found.insert(text(package, "id")?, Package { name: text(package, "name")?, env });
    }
    Ok(found)
}

/// A field that must be a text.
fn text(value: &Value, key: &str) -> Result<String, String> {
    let found = value[key].as_str().map(str::to_owned);
    found.ok_or_else(|| format!("cargo: no text {key:?} in {value}"))
}

/// What cargo's messages say.
#[derive(Default)]
struct Built {
    tests: Vec<Test>,
    /// Package and name of each binary, with its path.
    binaries: BTreeMap<(String, String), PathBuf>,
    /// By package: what its build script set.
    scripts: BTreeMap<String, Script>,
}

struct Test {
    package: String,
    manifest: PathBuf,
    /// `lib`, `bin`, `test` …
    kind: String,
    target: String,
    executable: PathBuf,
}

#[derive(Default)]
struct Script {
    env: BTreeMap<String, OsString>,
    libraries: Vec<PathBuf>,
}

impl Built {
    /// Reads one message.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let message: Value =
            serde_json::from_str(line).map_err(|e| format!("cargo: {e} in the message {line}"))?;
        match text(&message, "reason")?.as_str() {
            "compiler-artifact" => self.add_artifact(&message),
            "build-script-executed" => self.add_script(&message),
            // The rendered text is on standard error; the exit status says whether it failed.
            "compiler-message" | "build-finished" => Ok(()),
            other => Err(format!("cargo: unknown kind of message {other:?}: {line}")),
        }
    }

    fn add_artifact(&mut self, message: &Value) -> Result<(), String> {
        let is_test = message["profile"]["test"].as_bool();
        let is_test = is_test.ok_or_else(|| format!("cargo: no profile.test in {message}"))?;
        let executable = match &message["executable"] {
            Value::Null => return Ok(()),
            Value::String(path) => PathBuf::from(path),
            other => return Err(format!("cargo: unknown executable {other}")),
        };
        let package = text(message, "package_id")?;
        let kind = message["target"]["kind"][0].as_str();
        let kind = kind.ok_or_else(|| format!("cargo: no kind of target in {message}"))?.to_owned();
        let target = text(&message["target"], "name")?;
        if is_test {
            let manifest = text(message, "manifest_path")?.into();
            self.tests.push(Test { package, manifest, kind, target, executable });
        } else if kind == "bin" {
            self.binaries.insert((package, target), executable);
        }
        Ok(())
    }

    fn add_script(&mut self, message: &Value) -> Result<(), String> {
        let unknown = || format!("cargo: fields are missing in {message}");
        let mut script = Script::default();
        for pair in message["env"].as_array().ok_or_else(unknown)? {
            let (Some(key), Some(value)) = (pair[0].as_str(), pair[1].as_str()) else {
                return Err(unknown());
            };
            script.env.insert(key.to_owned(), value.into());
        }
        script.env.insert("OUT_DIR".to_owned(), text(message, "out_dir")?.into());
        for path in message["linked_paths"].as_array().ok_or_else(unknown)? {
            let path = path.as_str().ok_or_else(unknown)?;
            // Perhaps with a kind: `native=/path`.
            script.libraries.push(path.split_once('=').map_or(path, |(_, path)| path).into());
        }
        self.scripts.insert(text(message, "package_id")?, script);
        Ok(())
    }

    fn programs(&self, packages: &BTreeMap<String, Package>) -> Result<Vec<Program>, String> {
        self.tests.iter().map(|test| self.program(test, packages)).collect()
    }

    fn program(
        &self,
        test: &Test,
        packages: &BTreeMap<String, Package>,
    ) -> Result<Program, String> {
        let package = packages.get(&test.package);
        let package =
            package.ok_or_else(|| format!("cargo metadata does not name {}", test.package))?;
        let dir = test.manifest.parent().unwrap_or(Path::new(".")).to_owned();
        let mut env = package.env.clone();
        env.insert("CARGO".to_owned(), cargo());
        env.insert("CARGO_MANIFEST_DIR".to_owned(), dir.clone().into());
        for ((owner, name), path) in &self.binaries {
            if *owner == test.package && test.kind == "test" {
                env.insert(format!("CARGO_BIN_EXE_{name}"), path.into());
            }
        }
        let mut libraries: Vec<PathBuf> =
            self.scripts.values().flat_map(|script| script.libraries.iter().cloned()).collect();
        if let Some(script) = self.scripts.get(&test.package) {
            env.extend(script.env.clone());
        }
        libraries.extend(test.executable.ancestors().skip(1).take(2).map(Path::to_owned));
        let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        libraries.extend(std::env::split_paths(&inherited));
        let libraries = std::env::join_paths(libraries).map_err(|e| format!("libraries: {e}"))?;
        env.insert("LD_LIBRARY_PATH".to_owned(), libraries);
        let name = match test.kind.as_str() {
            "test" => format!("{} {}", package.name, test.target),
            kind => format!("{} ({kind})", package.name),
        };
        Ok(Program { name, executable: test.executable.clone(), dir, env })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/a#a@0.1.0",
        "manifest_path":"/w/a/Cargo.toml","target":{"kind":["test"],"name":"it"},
        "profile":{"test":true},"executable":"/w/target/debug/deps/it-1"}"#;

    fn built(messages: &[&str]) -> Result<Built, String> {
        let mut built = Built::default();
        messages.iter().try_for_each(|message| built.add(&message.replace('\n', " ")))?;
        Ok(built)
    }

    fn packages() -> BTreeMap<String, Package> {
        let metadata = r#"{"packages":[{"id":"path+file:///w/a#a@0.1.0","name":"a",
            "version":"0.1.2-rc.1+x","authors":["A","B"],"manifest_path":"/w/a/Cargo.toml"}]}"#;
        packages_of(&serde_json::from_str(metadata).unwrap()).unwrap()
    }

    #[test]
    fn a_program_gets_what_cargo_sets() {
        let script = r#"{"reason":"build-script-executed","package_id":"path+file:///w/a#a@0.1.0",
            "env":[["FROM_SCRIPT","1"]],"out_dir":"/w/target/out",
            "linked_paths":["native=/w/target/native"]}"#;
        let binary = ARTIFACT
            .replace("[\"test\"]", "[\"bin\"]")
            .replace("true", "false")
            .replace("\"it\"", "\"tool\"");
        let built = built(&[script, &binary, ARTIFACT]).unwrap();
        let programs = built.programs(&packages()).unwrap();
        let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
        assert_eq!((program.name.as_str(), program.dir.to_str()), ("a it", Some("/w/a")));
        for (key, value) in [
            ("CARGO_MANIFEST_DIR", "/w/a"),
            ("CARGO_PKG_VERSION_PATCH", "2"),
            ("CARGO_PKG_VERSION_PRE", "rc.1"),
            ("CARGO_PKG_AUTHORS", "A:B"),
            ("CARGO_BIN_EXE_tool", "/w/target/debug/deps/it-1"),
            ("FROM_SCRIPT", "1"),
            ("OUT_DIR", "/w/target/out"),
        ] {
            assert_eq!(program.env[key], *value, "{key}");
        }
        let libraries = program.env["LD_LIBRARY_PATH"].to_string_lossy();
        assert!(libraries.starts_with("/w/target/native:/w/target/debug/deps:/w/target/debug"));
    }

    #[test]
    fn a_message_that_is_not_understood_is_refused() {
        for message in [
            "Compiling a",
            "{}",
            r#"{"reason":"compiler-surprise"}"#,
            &ARTIFACT.replace("\"profile\":{\"test\":true},", ""),
            &ARTIFACT.replace("\"/w/target/debug/deps/it-1\"", "1"),
            &ARTIFACT.replace("manifest_path", "manifest"),
            r#"{"reason":"build-script-executed","package_id":"a"}"#,
        ] {
            assert!(built(&[message]).is_err(), "{message}");
        }
        let other = ARTIFACT.replace("a@0.1.0", "b@0.1.0");
        assert!(built(&[&other]).unwrap().programs(&packages()).is_err());
    }

    #[test]
    fn what_is_no_test_is_no_program() {
        let library = ARTIFACT.replace("\"/w/target/debug/deps/it-1\"", "null");
        let example = ARTIFACT.replace("true", "false").replace("[\"test\"]", "[\"example\"]");
        let finished = r#"{"reason":"build-finished","success":true}"#;
        let built = built(&[&library, &example, finished]).unwrap();
        assert!(built.tests.is_empty() && built.binaries.is_empty());
    }
}

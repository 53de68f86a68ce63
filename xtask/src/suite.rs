//! `cargo xtask test`: builds all test programs once and runs several at the same time.
//!
//! ```text
//!   build ──► LONG, then the others ──► as many at a time as processors ──► ALONE ──► doc tests
//!                                            │
//!                                            └── over its limit, or a signal: its group is ended
//! ```
//!
//! A failure does not end the run; all failures are listed at the end. The output of a program is
//! in `target/test-output`. Standard error is printed when the program ends, standard output only
//! if it fails.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cargo;
use crate::programs::{self, Program};

/// Programs that take long, the longest first. They begin first, so that the last ones to end
/// are short. A run prints which programs were the longest.
const LONG: &[&str] = &[
    "extant it",
    "extant-crash-tests random",
    "extant-crash-tests alone",
    "extant-compat-tests kernel_dirty",
    "extant-compat-tests kernel_clean",
    "extant-cli it",
    "extant-crash-tests sums",
    "extant-compat-tests fast_commits",
    "extant-crash-tests fast",
    "extant-crash-tests layouts",
    "extant-hostile-tests bounded",
    "extant-compat-tests linux_replays",
    "extant-compat-tests built",
    "extant-crash-tests cached",
    "extant-schedule-tests (lib)",
    "extant (lib)",
];

/// Programs that run while no other runs, because they expect other threads or the mount's server
/// to keep up with them.
const ALONE: &[&str] = &[
    // It waits 50 to 100 ms for what FUSE does after a file is closed.
    "extant-mount-tests posix",
    // Read-ahead is ahead of a reader in most reads.
    "extant-pagecache it",
];

/// How many of the longest programs a run prints.
const LONGEST: usize = 12;

/// A program that runs longer is ended, and fails.
const LIMIT_OF_PROGRAM: Duration = Duration::from_secs(30 * 60);

/// How long the processes of a program may take to end after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(5);

/// How often a worker looks whether its program has ended.
const INTERVAL: Duration = Duration::from_millis(20);

/// Builds and runs the test programs of some packages, or of all, and then their doc tests.
pub fn run(packages: &[&str]) -> Result<(), String> {
    let began = Instant::now();
    println!("== tests: build");
    let mut programs = programs::build(packages)?;
    programs.sort_by_cached_key(|program| place(&program.name));
    let (alone, shared): (Vec<&Program>, Vec<&Program>) =
        programs.iter().partition(|program| ALONE.contains(&program.name.as_str()));
    if packages.is_empty() {
        let known = |name: &&&str| programs.iter().any(|program| program.name == **name);
        if let Some(name) = LONG.iter().chain(ALONE).find(|name| !known(name)) {
            return Err(format!("xtask/src/suite.rs lists {name:?}, which is no test program"));
        }
    }
    let runner = Runner::new()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let count = programs.len();
    println!(
        "== tests: {count} programs, {workers} at a time ({:.0} s)",
        began.elapsed().as_secs_f32()
    );
    let mut outcomes = at_a_time(workers, &shared, |program| runner.program(program));
    outcomes.extend(alone.iter().map(|program| runner.program(program)));
    if programs.iter().any(|program| program.name.ends_with("(lib)")) {
        outcomes.push(runner.doc_tests(packages));
    }
    report(&outcomes, runner.is_interrupted())?;
    println!("== tests: ok ({:.0} s)", began.elapsed().as_secs_f32());
    Ok(())
}

/// Programs of `LONG` in their order, then the others by name.
fn place(name: &str) -> (usize, String) {
    (LONG.iter().position(|long| *long == name).unwrap_or(LONG.len()), name.to_owned())
}

/// Calls `run` on each item, from `workers` threads.
fn at_a_time<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = std::sync::Mutex::new(items.iter());
    let worker = || {
        let mut done = Vec::new();
        loop {
            let item = next.lock().expect("no worker panics with the lock").next();
            let Some(item) = item else { return done };
            done.push(run(item));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let done =
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic"));
        done.flatten().collect()
    })
}

/// How a program ended.
struct Outcome {
    name: String,
    seconds: f32,
    /// Numbers of tests that passed and that were ignored, or the reason of the failure.
    result: Result<(usize, usize), String>,
}

/// Prints the totals. The error lists every failure.
fn report(outcomes: &[Outcome], is_interrupted: bool) -> Result<(), String> {
    let (mut passed, mut ignored, mut failures) = (0, 0, Vec::new());
    for outcome in outcomes {
        match &outcome.result {
            Ok((some_passed, some_ignored)) => {
                passed += some_passed;
                ignored += some_ignored;
            }
            Err(reason) => failures.push(format!("{}: {reason}", outcome.name)),
        }
    }
    let mut longest: Vec<&Outcome> = outcomes.iter().collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let longest = longest.iter().take(LONGEST);
    let longest: Vec<_> = longest.map(|one| format!("{} {:.0} s", one.name, one.seconds)).collect();
    println!("== tests: the longest: {}", longest.join(", "));
    println!("== tests: {passed} passed, {ignored} ignored, in programs that passed");
    if is_interrupted {
        return Err("tests: interrupted".to_owned());
    }
    match failures.len() {
        0 => Ok(()),
        n => Err(format!("tests: {n} of {} failed:\n  {}", outcomes.len(), failures.join("\n  "))),
    }
}

/// What the runs of all programs share.
struct Runner {
    began: Instant,
    /// Directory of the files with the programs' output.
    output: PathBuf,
    /// Set by a signal that asks this process to end.
    interrupted: Arc<AtomicBool>,
    limit: Duration,
}

impl Runner {
    fn new() -> Result<Runner, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let runner = Runner::at(&Path::new(&target).join("test-output"), LIMIT_OF_PROGRAM)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, runner.interrupted.clone())
                .map_err(|e| format!("signal {signal}: {e}"))?;
        }
        Ok(runner)
    }

    fn at(output: &Path, limit: Duration) -> Result<Runner, String> {
        fs::create_dir_all(output).map_err(|e| format!("{}: {e}", output.display()))?;
        Ok(Runner {
            began: Instant::now(),
            output: output.to_owned(),
            interrupted: Arc::default(),
            limit,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn program(&self, program: &Program) -> Outcome {
        let mut command = Command::new(&program.executable);
        command.current_dir(&program.dir).envs(&program.env);
        self.outcome(&program.name, &mut command)
    }

    fn doc_tests(&self, packages: &[&str]) -> Outcome {
        let mut command = Command::new(cargo());
        command.args(["test", "--doc", "--quiet", "--no-fail-fast"]);
        self.outcome("doc tests", command.args(programs::selection(packages)))
    }

    /// Runs a command and prints a line about it: when it began, how it ended and how long it took.
    fn outcome(&self, name: &str, command: &mut Command) -> Outcome {
        let (start, began) = (self.began.elapsed().as_secs_f32(), Instant::now());
        let file = |kind: &str| self.output.join(format!("{}.{kind}", name.replace(' ', ".")));
        let (stdout, stderr) = (file("out"), file("err"));
        let result = self.result(command, &stdout, &stderr);
        let ending = match &result {
            Ok((passed, 0)) => format!("ok, {passed} passed"),
            Ok((passed, ignored)) => format!("ok, {passed} passed, {ignored} ignored"),
            Err(reason) => format!("FAILED: {reason}"),
        };
        let seconds = began.elapsed().as_secs_f32();
        let mut line = format!("{start:6.0} s  {name}: {ending} ({seconds:.1} s)\n");
        if result.is_err() {
            line.push_str(&content(&stdout));
        }
        line.push_str(&content(&stderr));
        // One call, so that the lines of two workers do not mix.
        print!("{line}");
        Outcome { name: name.to_owned(), seconds, result }
    }

    /// Runs a command to its end. Returns how many tests passed and how many were ignored.
    fn result(
        &self,
        command: &mut Command,
        stdout: &Path,
        stderr: &Path,
    ) -> Result<(usize, usize), String> {
        let create = |path: &Path| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        command.stdin(Stdio::null()).stdout(create(stdout)?).stderr(create(stderr)?);
        if self.is_interrupted() {
            return Err("did not run".to_owned());
        }
        // A group of its own, so that its children end with it.
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|error| format!("it does not start: {error}"))?;
        let status = self.wait(&mut child)?;
        if !status.success() {
            return Err(status.to_string());
        }
        counts(&content(stdout)).ok_or_else(|| "it reported no result".to_owned())
    }

    /// Waits for a child. Ends its group at the limit, or if this process is asked to end.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus, String> {
        let began = Instant::now();
        let failed = |error: std::io::Error| format!("waiting for it: {error}");
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
            let reason = if self.is_interrupted() {
                "interrupted".to_owned()
            } else if began.elapsed() > self.limit {
                format!("ended after its limit of {} s", self.limit.as_secs())
            } else {
                std::thread::sleep(INTERVAL);
                continue;
            };
            end_group(child).map_err(failed)?;
            return Err(reason);
        }
    }
}

/// Ends the process group of a child: first with `SIGTERM`, after [`GRACE`] with `SIGKILL`.
fn end_group(child: &mut Child) -> std::io::Result<()> {
    let group = Pid::from_child(child);
    // The group may have ended meanwhile.
    let _ = kill_process_group(group, Signal::TERM);
    let began = Instant::now();
    while began.elapsed() < GRACE && child.try_wait()?.is_none() {
        std::thread::sleep(INTERVAL);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}

/// The content of a file of output; of one that cannot be read, the reason.
fn content(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("{}: {error}\n", path.display()),
    }
}

/// The totals of the lines in which the test harness reports its result. `None` if there is no
/// such line.
fn counts(output: &str) -> Option<(usize, usize)> {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let count = |part: Option<&str>, what: &str| -> Option<usize> {
        part?.trim().strip_suffix(what)?.trim().parse().ok()
    };
    results.fold(None, |total, result| {
        let mut parts = result.split(';');
        let passed = count(parts.next(), "passed")?;
        let ignored = count(parts.nth(1), "ignored")?;
        let (all_passed, all_ignored) = total.unwrap_or_default();
        Some((all_passed + passed, all_ignored + ignored))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs shell scripts, two at a time, with their output in a directory named after the test.
    fn run_scripts(
        test: &str,
        limit: Duration,
        scripts: &[&str],
    ) -> Vec<Result<(usize, usize), String>> {
        let output = std::env::temp_dir().join(format!("xtask-{test}-{}", std::process::id()));
        let runner = Runner::at(&output, limit).unwrap();
        let numbered: Vec<(usize, &&str)> = scripts.iter().enumerate().collect();
        let mut outcomes = at_a_time(2, &numbered, |(nr, script)| {
            let mut command = Command::new("sh");
            runner.outcome(&format!("script {nr}"), command.args(["-c", script]))
        });
        fs::remove_dir_all(output).unwrap();
        outcomes.sort_by(|a, b| a.name.cmp(&b.name));
        outcomes.into_iter().map(|outcome| outcome.result).collect()
    }

    const PASSED: &str = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'";

    #[test]
    fn a_failure_does_not_end_the_run() {
        let results = run_scripts("failure", Duration::from_secs(60), &["exit 3", PASSED, "true"]);
        assert_eq!(results[0], Err("exit status: 3".to_owned()));
        assert_eq!(results[1], Ok((3, 1)));
        assert_eq!(results[2], Err("it reported no result".to_owned()));
    }

    #[test]
    fn the_group_of_a_program_over_its_limit_is_ended() {
        let began = Instant::now();
        let scripts = ["sleep 600 & wait", "trap '' TERM; sleep 600 & wait; sleep 600"];
        let results = run_scripts("limit", Duration::from_millis(300), &scripts);
        for result in results {
            assert_eq!(result, Err("ended after its limit of 0 s".to_owned()));
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn results_of_several_crates_are_added_up() {
        let line = "test result: ok. 2 passed; 0 failed; 5 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(&format!("running 2 tests\n{line}\n\n{line}\n")), Some((4, 10)));
        assert_eq!(counts("running 2 tests\n"), None);
    }

    #[test]
    fn every_failure_is_listed() {
        let outcome = |name: &str, result| Outcome { name: name.to_owned(), seconds: 1.0, result };
        let outcomes = [
            outcome("a", Err("exit status: 1".to_owned())),
            outcome("b", Ok((1, 0))),
            outcome("c", Err("signal: 9".to_owned())),
        ];
        let error = report(&outcomes, false).unwrap_err();
        assert_eq!(error, "tests: 2 of 3 failed:\n  a: exit status: 1\n  c: signal: 9");
        assert_eq!(report(&outcomes[1..2], false), Ok(()));
    }
}

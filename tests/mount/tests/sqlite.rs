//! SQLite on the mount: what it acknowledged as committed is there, whichever process is killed.
//!
//! ```text
//!   sqlite3 ◄── transactions 1, 2, 3, …
//!      └──────► "n", once n is committed ──► the acknowledged number, kept here
//!   SIGKILL to sqlite3, or to the server and a remount ──► integrity_check, no number missing
//! ```

use extant_mount_tests::served::{Served, a_moment, by_linux, effort, moments};
use extant_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// Kills of each kind and journal mode.
const ROUNDS: usize = 3;
/// Each number changes the counter's row and adds rows of all sizes.
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS log(n INTEGER PRIMARY KEY, text BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS total(id INTEGER PRIMARY KEY, n INTEGER);
    CREATE INDEX IF NOT EXISTS texts ON log(substr(text, 1, 20));
    INSERT OR IGNORE INTO total VALUES(1, 0);";

/// A client that commits numbers one by one.
struct Client {
    program: Child,
    acknowledged: JoinHandle<i64>,
}

impl Client {
    /// Commits `from..to`, in `journal` mode with `sync` as its `synchronous`.
    fn start(served: &Served, journal: &str, sync: &str, from: i64, to: i64) -> Self {
        // A pragma that sets a value answers with that value, which is no committed number.
        let mut script = format!(
            ".bail on\n.output /dev/null\nPRAGMA journal_mode={journal};\n\
             PRAGMA synchronous={sync};\nPRAGMA wal_autocheckpoint=60;\n.output stdout\n"
        );
        for n in from..to {
            let bytes = if n % 50 == 0 { 30_000 } else { 20 + n % 700 };
            writeln!(
                script,
                "BEGIN IMMEDIATE; INSERT INTO log VALUES({n}, randomblob({bytes}));
                 UPDATE total SET n = n + 1; COMMIT; SELECT {n};"
            )
            .unwrap();
        }
        let input = served.outside("transactions");
        std::fs::write(&input, script).unwrap();
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "sqlite3", "db"]).current_dir(served.dir());
        command.stdin(std::fs::File::open(&input).unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().unwrap();
        let acknowledged = BufReader::new(program.stdout.take().unwrap());
        let acknowledged = std::thread::spawn(move || {
            let mut next = from;
            for line in acknowledged.lines().map_while(Result::ok) {
                assert_eq!(line, next.to_string(), "the client says something else");
                next += 1;
            }
            next - 1
        });
        Self { program, acknowledged }
    }

    /// The client has ended, one way or the other. Returns the last number that it acknowledged;
    /// without one, the number before its first.
    fn ended(mut self) -> i64 {
        self.program.wait().unwrap();
        self.acknowledged.join().unwrap()
    }
}

fn query(served: &Served, sql: &str) -> String {
    served.sh(&format!("sqlite3 -bail db '{sql}'")).out().trim().to_owned()
}

/// The database is consistent and contains `1..=last`, the last number acknowledged, and perhaps
/// one more.
#[track_caller]
fn check(served: &Served, acknowledged: i64) -> i64 {
    assert_eq!(query(served, "PRAGMA integrity_check"), "ok");
    let found =
        query(served, "SELECT count(*), coalesce(max(n), 0), (SELECT n FROM total) FROM log");
    let numbers: Vec<i64> = found.split('|').map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers[0], numbers[1], "a number is missing");
    assert_eq!(numbers[0], numbers[2], "half a transaction");
    let last = numbers[0];
    assert!((acknowledged..=acknowledged + 1).contains(&last), "{last}, not {acknowledged}");
    last
}

fn begin(served: &Served, journal: &str) {
    query(served, &format!("PRAGMA journal_mode={journal}; {SCHEMA}"));
}

/// Commits everything without a kill, then again and again with one.
fn client_is_killed(journal: &str, salt: u64) {
    let mut rng = moments(salt);
    let served = Served::new(256, "");
    begin(&served, journal);
    let mut last = Client::start(&served, journal, "FULL", 1, 1001).ended();
    assert_eq!(last, 1000, "it ended early");
    check(&served, last);
    for _ in 0..ROUNDS * effort() {
        let mut client = Client::start(&served, journal, "FULL", last + 1, last + 20_000);
        a_moment(&mut rng, 20, 700);
        client.program.kill().unwrap();
        last = check(&served, client.ended());
    }
    // Much is changed at once, and the file becomes smaller.
    query(&served, "DELETE FROM log WHERE n % 3 = 0; UPDATE log SET text = randomblob(300);");
    query(&served, "VACUUM");
    assert_eq!(query(&served, "PRAGMA integrity_check"), "ok");
    served.finish();
}

fn server_is_killed(journal: &str, sync: &str, salt: u64) {
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    let mut rng = moments(salt);
    let mut served = Served::new(256, "");
    begin(&served, journal);
    let mut last = 0;
    for round in 0..ROUNDS * effort() {
        println!("{journal}, {sync}, round {round}");
        let mut client = Client::start(&served, journal, sync, last + 1, last + 20_000);
        a_moment(&mut rng, 100, 900);
        if journal == "DELETE" {
            // Otherwise sqlite3 would take the end of the mount for a commit: it treats a directory
            // that it cannot open as one that needs no sync, and a journal that it no longer finds,
            // because the mount is gone, as one that it removed. That applies to the present
            // transaction only; the next one needs a sync, which fails.
            kill_process(Pid::from_child(&client.program), Signal::STOP).unwrap();
        }
        served.kill();
        client.program.kill().unwrap();
        let acknowledged = client.ended();
        served.mount();
        last = check(&served, acknowledged);
        if rng.below(2) == 0 {
            served.unmount();
            served.mount();
        }
    }
    served.finish();
}

macro_rules! needs {
    () => {
        require!(Root, Fuse, Loop, E2fsprogs, Program("sqlite3"), Program("stdbuf"))
    };
}

#[test]
fn a_killed_client_leaves_a_whole_database_with_a_rollback_journal() {
    needs!();
    client_is_killed("DELETE", 1);
    client_is_killed("PERSIST", 2);
}

#[test]
fn a_killed_client_leaves_a_whole_database_with_a_write_ahead_log() {
    needs!();
    client_is_killed("WAL", 3);
}

#[test]
fn a_killed_server_loses_nothing_committed_with_a_rollback_journal() {
    needs!();
    // EXTRA syncs the directory after the journal's removal. With FULL alone the journal may come
    // back, and undo the last transaction.
    server_is_killed("DELETE", "EXTRA", 4);
    server_is_killed("TRUNCATE", "FULL", 5);
}

#[test]
fn a_killed_server_loses_nothing_committed_with_a_write_ahead_log() {
    needs!();
    server_is_killed("WAL", "FULL", 6);
}

#[test]
fn two_clients_alternate() {
    needs!();
    let served = Served::new(128, "");
    begin(&served, "WAL");
    let client = |_: &Path| {
        let script = "for i in $(seq 60); do
            sqlite3 -bail -cmd '.timeout 60000' db 'UPDATE total SET n = n + 1'; done";
        served.try_sh(script, extant_mount_tests::served::LIMIT)
    };
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..3).map(|_| threads.spawn(|| client(served.dir()))).collect();
        for done in clients {
            let done = done.join().unwrap();
            assert!(done.ok(), "{done}");
        }
    });
    assert_eq!(query(&served, "SELECT n FROM total"), "180");
    served.finish();
}

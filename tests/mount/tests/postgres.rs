//! PostgreSQL on the mount: its data is consistent and complete, whichever process is killed.
//!
//! ```text
//!   initdb, pgbench -i ──► pgbench ── SIGKILL to all of postgres, or to the mount's server ─┐
//!      ▲                                                                                     │
//!      └── sums equal, nothing acknowledged is missing, amcheck ◄── its own recovery ◄───────┘
//! ```

use extant_mount_tests::served::{Served, a_moment, by_linux, effort, moments, ok};
use extant_testkit::command::{Finished, run_in};
use extant_testkit::judge::program;
use extant_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Kills of each kind.
const ROUNDS: usize = 2;
const LIMIT: Duration = Duration::from_secs(120);
/// initdb and postgres refuse root; every machine has this user.
const AS_OTHER_USER: &str = "setpriv --reuid=nobody --regid=nogroup --clear-groups";
/// Small, so that much is read and written; memory that its processes share is a file of the mount,
/// too.
const CONFIGURATION: &str = "
shared_buffers = 2MB
min_wal_size = 32MB
max_wal_size = 64MB
checkpoint_timeout = 30s
dynamic_shared_memory_type = mmap
listen_addresses = ''
";

/// A database in the directory `data` of a volume.
struct Database {
    served: Served,
    postgres: Option<Child>,
    /// Transactions whose commit was acknowledged to pgbench.
    acknowledged: usize,
}

impl Database {
    fn new() -> Self {
        let served = Served::new(512, "");
        // Users other than root connect to the socket.
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(served.outside("."), open).unwrap();
        served
            .sh("mkdir -m 700 data && mkdir $OUT/socket && chown nobody:nogroup data $OUT/socket");
        let mut database = Self { served, postgres: None, acknowledged: 0 };
        let initdb = bin("initdb");
        database.served.sh(&format!(
            "{AS_OTHER_USER} {} -D data -k --no-locale -E UTF8 -A trust > $OUT/initdb 2>&1 ||
             {{ tail $OUT/initdb; exit 1; }}",
            initdb.display()
        ));
        database.served.sh(&format!("cat >> data/postgresql.conf <<'END'{CONFIGURATION}END"));
        database.start();
        database.client("pgbench", "-i -q -s 2 --foreign-keys postgres 2> $OUT/init");
        database
    }

    fn socket(&self) -> PathBuf {
        self.served.outside("socket")
    }

    /// Runs one of PostgreSQL's programs as its user, outside the mount.
    fn client_ends(&self, name: &str, arguments: &str) -> Finished {
        let (bin, out) = (bin(name), self.served.outside("."));
        let (bin, out, socket) = (bin.display(), out.display(), self.socket());
        let socket = socket.display();
        let script =
            format!("OUT={out}\nexport PGHOST={socket}\n{AS_OTHER_USER} {bin} {arguments}");
        let done = self.served.watched(LIMIT, || run_in(&self.socket(), &script, LIMIT));
        ok(done)
    }

    #[track_caller]
    fn client(&self, name: &str, arguments: &str) -> String {
        let done = self.client_ends(name, arguments);
        assert!(done.ok(), "{done}\n{}", self.log());
        done.out()
    }

    fn query(&self, sql: &str) -> String {
        self.client("psql", &format!("-d postgres -qAt -v ON_ERROR_STOP=1 -c \"{sql}\""))
            .trim()
            .to_owned()
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.served.outside("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Starts the server and waits until it has recovered.
    fn start(&mut self) {
        assert!(self.postgres.is_none());
        let log = std::fs::File::create(self.served.outside("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(AS_OTHER_USER.split(' ').skip(1)).arg(bin("postgres"));
        command.arg("-D").arg(self.served.dir().join("data")).arg("-k").arg(self.socket());
        command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        self.postgres = Some(command.spawn().unwrap());
        for _ in 0..600 {
            if self.client_ends("pg_isready", "-q").ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
            let ended = self.postgres.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "postgres ended with {ended:?}\n{}", self.log());
        }
        panic!("postgres does not answer\n{}", self.log());
    }

    /// SIGKILL to the first process and to all that it started.
    fn kill(&mut self) {
        let mut first = self.postgres.take().unwrap();
        let pid = Pid::from_child(&first);
        // While it is stopped it starts no others.
        kill_process(pid, Signal::STOP).unwrap();
        let list = format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero());
        let children = std::fs::read_to_string(list).unwrap();
        first.kill().unwrap();
        for child in
            children.split_whitespace().filter_map(|text| Pid::from_raw(text.parse().ok()?))
        {
            // An error means that it has just ended by itself.
            let _ = kill_process(child, Signal::KILL);
        }
        first.wait().unwrap();
    }

    fn stop(&mut self) {
        let mut first = self.postgres.take().unwrap();
        kill_process(Pid::from_child(&first), Signal::INT).unwrap();
        let status = self.served.watched(LIMIT, || first.wait()).unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Lets pgbench work until `end`, called in the middle, has killed postgres or the server.
    fn worked_until(&mut self, end: impl FnOnce(&mut Self)) {
        let dir = self.socket();
        let mut command = Command::new("setpriv");
        command.args(AS_OTHER_USER.split(' ').skip(1)).arg(bin("pgbench"));
        command.args([
            "-n",
            "-c",
            "4",
            "-j",
            "2",
            "-T",
            "60",
            "-l",
            "--log-prefix=told",
            "postgres",
        ]);
        command.env("PGHOST", &dir).current_dir(&dir).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut pgbench = command.spawn().unwrap();
        end(self);
        pgbench.wait().unwrap();
        for entry in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("told.") {
                let acknowledged_log = std::fs::read_to_string(entry.path()).unwrap();
                self.acknowledged += acknowledged_log.matches('\n').count();
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Each transaction added one amount in four tables: all of it or nothing, and none is missing.
    fn check(&mut self) {
        let sums = self.query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers),
                (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
        );
        let sums: Vec<&str> = sums.split('|').collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "sums differ: {sums:?}");
        let found: usize = self.query("SELECT count(*) FROM pgbench_history").parse().unwrap();
        println!("{found} transactions, {} acknowledged", self.acknowledged);
        assert!(found >= self.acknowledged, "{found} of {} are there", self.acknowledged);
        // Transactions that ended with their client were committed without an answer: they count
        // from now on.
        self.acknowledged = found;
        self.client("pg_amcheck", "--install-missing --heapallindexed --parent-check postgres");
    }

    /// Stops it in order: every page's checksum is right, and so is the volume.
    fn finish(mut self) {
        self.stop();
        self.served
            .sh(&format!("{AS_OTHER_USER} {} --check -D data", bin("pg_checksums").display()));
        let served = std::mem::replace(&mut self.served, Served::new(16, ""));
        served.finish();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.postgres.is_some() {
            self.kill();
        }
    }
}

fn bin(name: &str) -> PathBuf {
    program(name).expect("the test requires it")
}

#[test]
fn killed_databases_and_killed_mounts_lose_no_transaction() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("postgres"), Program("setpriv"));
    let mut rng = moments(20);
    let mut database = Database::new();
    database.check();
    for _ in 0..ROUNDS * effort() {
        database.worked_until(|database| {
            a_moment(&mut rng, 500, 2500);
            database.kill();
        });
        database.start();
        database.check();
    }
    for _ in 0..if by_linux() { 0 } else { ROUNDS * effort() } {
        database.worked_until(|database| {
            a_moment(&mut rng, 500, 2500);
            database.served.kill();
            database.kill();
        });
        database.served.mount();
        database.start();
        database.check();
    }
    // Rewritten tables, new indexes, freed space.
    database.query("VACUUM FULL ANALYZE");
    database.query("REINDEX DATABASE postgres");
    database.check();
    database.finish();
}

//! A script: it runs calls, and notes each answer under a unique label.
//!
//! ```text
//!   rename/file over directory ⇥ EISDIR        family/label, tab, answer
//! ```

use crate::answer::Shown;
use crate::calls;
use rustix::fs::{Mode, Statx};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::HashMap;
use std::time::Duration;

/// Longer than two ticks of a kernel's coarse clock.
const TICK: Duration = Duration::from_millis(21);

/// A user as which part of a script runs, without root's privileges.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// The owner to whom scripts give files.
pub const OWNER: User = User { uid: 1000, gid: 1000, groups: &[1000] };
/// In the owner's group by a supplementary group, and in 2000.
pub const MEMBER: User = User { uid: 1001, gid: 1001, groups: &[1001, 1000, 2000] };
/// Has nothing in common with the others.
pub const STRANGER: User = User { uid: 1002, gid: 1002, groups: &[1002] };

/// The answers so far.
#[derive(Debug, Default)]
pub struct Script {
    family: &'static str,
    lines: Vec<String>,
    said: HashMap<String, u32>,
}

impl Script {
    /// Runs `act` in a new directory called `family`, and returns to the old one.
    ///
    /// # Panics
    /// If the directory cannot be created or left, because then no further case makes sense.
    pub fn family(&mut self, family: &'static str, act: impl FnOnce(&mut Script)) {
        self.family = family;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::fs::mkdir(family, Mode::from_raw_mode(0o755)).expect("the volume is new");
        self.inside(family, act);
    }

    /// Runs `act` with `dir` as its working directory.
    pub fn inside(&mut self, dir: &str, act: impl FnOnce(&mut Script)) {
        let back = calls::open(".", calls::READ).expect("it is open already");
        rustix::process::chdir(dir).expect("it is there");
        act(self);
        rustix::process::fchdir(&back).expect("it was open");
    }

    /// Sets the prefix of later answers; for a script in a place made elsewhere.
    pub fn named(&mut self, family: &'static str) {
        self.family = family;
    }

    /// Notes an answer.
    pub fn tell(&mut self, label: &str, answer: impl Shown) {
        let mut label = format!("{}/{label}", self.family);
        let before = self.said.entry(label.clone()).or_default();
        *before += 1;
        if *before > 1 {
            label += &format!(" #{before}");
        }
        self.lines.push(format!("{label}\t{}", answer.shown()));
    }

    /// Notes what `stat` shows of `path`, links not followed.
    pub fn stat(&mut self, path: &str) {
        self.tell(&format!("stat {path}"), calls::stat(path));
    }

    /// Notes the content of `path`.
    pub fn content(&mut self, path: &str) {
        self.tell(&format!("content {path}"), calls::content(path));
    }

    /// Runs `act` as `user`, in a thread of its own: Linux keeps credentials for each thread.
    pub fn as_user(&mut self, user: User, act: impl FnOnce(&mut Script) + Send) {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                become_user(user).expect("scripts run as root");
                act(self);
            });
            done.join().expect("the script's panic");
        });
    }

    /// Notes which times of `path` change by `act`, and the answer.
    pub fn times<T: Shown>(
        &mut self,
        what: &str,
        path: &str,
        act: impl FnOnce() -> Result<T, Errno>,
    ) {
        let before = calls::stat(path);
        std::thread::sleep(TICK);
        let done = act();
        let after = calls::stat(path);
        let changes = before.and_then(|before| Ok(changed(&before, &after?)));
        self.tell(&format!("{what}: times of {path}"), changes);
        self.tell(what, done);
    }

    /// All answers, a line each.
    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

fn changed(before: &Statx, after: &Statx) -> String {
    let word = |same: bool| if same { "kept" } else { "changed" };
    let mtime = (before.stx_mtime.tv_sec, before.stx_mtime.tv_nsec)
        == (after.stx_mtime.tv_sec, after.stx_mtime.tv_nsec);
    let ctime = (before.stx_ctime.tv_sec, before.stx_ctime.tv_nsec)
        == (after.stx_ctime.tv_sec, after.stx_ctime.tv_nsec);
    format!("mtime {}, ctime {}", word(mtime), word(ctime))
}

fn become_user(user: User) -> Result<(), Errno> {
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

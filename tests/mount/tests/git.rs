//! git on the mount: a large history cloned, packed, checked, and its branches checked out.
//!
//! ```text
//!   fast-import ──► origin (outside) ──clone──► the mount ──► gc, fsck, checkout, merge, status
//! ```

use extant_mount_tests::served::{Served, by_linux, effort};
use extant_testkit::command::Finished;
use extant_testkit::require;
use extant_testkit::rng::Rng;
use std::fmt::Write as _;

const FILES: usize = 3000;
const COMMITS: usize = 300;
/// Files that one commit changes.
const CHANGED: usize = 12;

/// A history for `git fast-import`: `main`, and `side` that leaves it half-way.
fn history(commits: usize) -> String {
    let mut rng = Rng::new(7);
    let mut text = String::new();
    let head = |text: &mut String, branch: &str, at: usize, message: &str| {
        let date = 1_700_000_000 + at * 60;
        writeln!(text, "commit refs/heads/{branch}\nmark :{at}").unwrap();
        writeln!(text, "committer A <a@example.org> {date} +0000").unwrap();
        writeln!(text, "data {}\n{message}", message.len()).unwrap();
    };
    let file = |text: &mut String, name: usize, content: &str| {
        let mode = if name.is_multiple_of(50) { "100755" } else { "100644" };
        writeln!(text, "M {mode} inline d{}/e{}/f{name}.txt", name % 13, name % 7).unwrap();
        writeln!(text, "data {}\n{content}", content.len()).unwrap();
    };
    head(&mut text, "main", 1, "all files");
    for name in 0..FILES {
        let lines = 1 + rng.below(60);
        file(&mut text, name, &format!("file {name}\n").repeat(lines));
    }
    writeln!(text, "M 120000 inline link\ndata 12\nd0/e0/f0.txt").unwrap();
    for at in 2..=commits {
        let side = at > commits / 2 && at % 2 == 0;
        let branch = if side { "side" } else { "main" };
        head(&mut text, branch, at, &format!("change {at}"));
        if side && at <= commits / 2 + 2 {
            writeln!(text, "from :{}", commits / 2).unwrap();
        }
        for _ in 0..CHANGED {
            // The branches change different files, so that they can be merged.
            let name = rng.below(FILES / 2) * 2 + usize::from(side);
            let lines = 1 + rng.below(40);
            file(&mut text, name, &format!("file {name}, change {at}\n").repeat(lines));
        }
    }
    text.push_str("done\n");
    text
}

/// Runs `script` with a git that reads no configuration of this machine.
#[track_caller]
fn git(served: &Served, script: &str) -> Finished {
    let alone = "export HOME=$OUT GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a \
                 GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a";
    served.sh(&format!("{alone}\n{script}"))
}

#[test]
fn a_large_history_is_cloned_packed_and_checked_out() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("git"));
    let served = Served::new(1024, "");
    std::fs::write(served.outside("history"), history(COMMITS * effort())).unwrap();
    let git = |script: &str| git(&served, script);
    let clean = r#"[ -z "$(git status --porcelain)" ]"#;
    git("git init -q --bare -b main $OUT/origin
         cd $OUT/origin && git fast-import --quiet < $OUT/history");
    git("git clone -q file://$OUT/origin clone && cd clone && git fsck --full --strict");
    git(&format!("cd clone && {clean}"));
    // Other branches, back and forth: thousands of files are replaced, and some exist only there.
    git(&format!(
        "cd clone && git checkout -q -b side origin/side && {clean}
         git checkout -q main~100 && {clean}
         git checkout -q main && git merge -q -m merged side && {clean}
         git -c core.fsync=all -c gc.auto=0 commit -q --allow-empty -m synced"
    ));
    // Loose objects and packs, then one pack.
    git("cd clone && git repack -q -d && git gc -q --aggressive --prune=now
         git fsck --full --strict && git count-objects -v | grep -qx 'count: 0'");
    // Not a status that relies on times and sizes: every file is read.
    git(&format!("cd clone && rm .git/index && git reset -q --mixed && {clean}"));
    git("cd clone && mkdir $OUT/export && git archive HEAD | tar -xC $OUT/export
         diff -r --no-dereference -x .git $OUT/export .");
    // A clone within the volume shares its packs by hard links; a push back adds new ones.
    git("git clone -q clone second && cd second && echo more > d0/more && git add d0/more
         git commit -q -m more && git push -q origin HEAD:refs/heads/more
         cd ../clone && git fsck --full && git show more:d0/more | grep -qx more");
    served.finish();
}

/// `core.fsyncMethod=batch`: git starts the write-back of each object, syncs one file after all of
/// them, and renames them. With `core.fsync=all` it then syncs the new index, which makes those
/// names durable. All objects are there after the server was killed. The last rename of a command
/// is not synced, so a lock file can be left, and the directory of branches is synced here.
#[test]
fn objects_synced_in_batches_outlive_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("git"));
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    let kinds = [
        ("", ""),
        ("--layout raid1", ""),
        ("--layout raid0", ""),
        ("-O fast_commit,data_csum --layout raid1", ""),
        #[cfg(target_arch = "x86_64")]
        ("-O fast_commit,data_csum", "dax_fc_bytelog=force,dax=always"),
    ];
    for (mkfs, options) in kinds {
        println!("{mkfs} {options}");
        let mut served = Served::with_options(64, mkfs, options);
        git(
            &served,
            "git init -q repository && cd repository && git config gc.auto 0
             git config core.fsync all && git config core.fsyncMethod batch
             sync . .git .git/* .git/refs/heads .git/objects/*",
        );
        for round in 0..2 {
            let add = format!(
                "cd repository && rm -f $(find .git -name '*.lock') && mkdir -p d{round}
                 for n in $(seq 40); do seq $n $((n + {round} + 500)) > d{round}/f$n; done
                 git add ."
            );
            git(&served, &format!("{add}; git ls-files -s | cut -d ' ' -f 2 > $OUT/objects"));
            served.kill();
            served.mount();
            git(
                &served,
                "cd repository && git cat-file --batch-check < $OUT/objects > $OUT/found
                 ! grep missing $OUT/found && git fsck --full --strict",
            );
            git(
                &served,
                &format!(
                    "{add} && git commit -q -m {round} && git rev-parse HEAD > $OUT/head
                     sync .git/refs/heads"
                ),
            );
            served.kill();
            served.mount();
            git(
                &served,
                "cd repository && git rev-parse HEAD | cmp - $OUT/head
                 rm -f $(find .git -name '*.lock') && git fsck --full --strict
                 git reset -q --hard && [ -z \"$(git status --porcelain)\" ]",
            );
        }
        served.finish();
    }
}

//! Large trees copied to the mount and back by tar, rsync and cp, and removed again.
//!
//! ```text
//!   /usr/include, /usr/share/doc ──tar──► the mount ──cp -a──► the mount ──rsync──► outside
//!   an ext4 with one of everything ──rsync -aHAX──► the mount ──rsync -aHAX──► an ext4
//! ```

use extant_mount_tests::served::{Served, ok};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::populate::populate;
use extant_testkit::require;

/// Files that make a tree large; those that this machine lacks are generated.
const FILES: usize = 6000;

#[test]
fn a_large_tree_is_unpacked_copied_and_removed() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("tar"), Program("rsync"));
    let served = Served::new(1536, "");
    served.sh(&format!(
        "mkdir $OUT/source && cd /usr
         find include share/doc -type f -size -64k | head -n 8000 > $OUT/list
         tar -cf - -T $OUT/list | tar -C $OUT/source -xpf -
         mkdir $OUT/source/made && cd $OUT/source/made
         have=$(wc -l < $OUT/list)
         n=$have; while [ $n -lt {FILES} ]; do n=$((n + 1)); echo \"file $n\" > $n; done
         cd $OUT/source && tar -cf $OUT/tar . && find . | sort > $OUT/names"
    ));
    served.sh("mkdir a && tar -C a -xpf $OUT/tar && tar -C a -df $OUT/tar
         [ -z \"$(rsync -nac --delete --itemize-changes $OUT/source/ a/)\" ]");
    served.sh("(cd a && find . | sort) | cmp - $OUT/names");
    // Within the mount, and out of it again.
    served.sh("cp -a a b && diff -r --no-dereference a b
         [ $(find b | wc -l) = $(wc -l < $OUT/names) ]
         rsync -aHAX --delete b/ $OUT/back/ && diff -r --no-dereference $OUT/source $OUT/back");
    // A second run finds nothing to do; after changes it copies just these.
    served.sh("rsync -ac --itemize-changes a/ b/ > $OUT/said && [ ! -s $OUT/said ]
         find b -name '*.h' | head -n 50 | xargs rm -f && rm -rf b/share/doc/[a-g]*
         rsync -aHAX --inplace --delete a/ b/ && diff -r --no-dereference a b");
    served.sh("rm -rf a && [ ! -e a ] && mv b/share c 2>/dev/null || mv b c
         [ $(find c -type f | wc -l) -gt 0 ]");
    served.finish();
}

#[test]
fn one_of_everything_is_brought_by_rsync_and_taken_back() {
    require!(
        Root,
        Fuse,
        Loop,
        E2fsprogs,
        Program("rsync"),
        Program("getfattr"),
        Program("setfacl")
    );
    let served = Served::new(256, "");
    let volume = |name: &str| {
        let image = served.outside(name);
        ok(mke2fs(&image, 256 << 20, "", None));
        ok(LoopMount::rw(&image, ""))
    };
    let (from, back) = (volume("from.img"), volume("back.img"));
    ok(populate(from.path(), "tree"));
    let whole = ok(Manifest::walk(from.path()));
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let (from, to) = (from.display(), to.display());
        // Times are compared to the nanosecond: a tree made in the same second would differ from
        // its copy.
        let but = "--exclude=/lost+found --delete --modify-window=-1";
        served.sh(&format!("rsync -aHAX --numeric-ids -S {but} {from}/ {to}/"))
    };
    copy(from.path(), served.dir());
    ok(whole.diff(&served.manifest(), Look::copy()).expect_same("the source | the mount"));
    copy(served.dir(), back.path());
    let returned = ok(Manifest::walk(back.path()));
    ok(whole.diff(&returned, Look::copy()).expect_same("the source | what came back"));
    served.finish();
}

#[test]
fn holes_are_found_and_what_is_still_being_written_is_none() {
    require!(Root, Fuse, Loop, E2fsprogs);
    let served = Served::new(128, "");
    // cp looks for holes if a file takes less space than its length.
    served.sh("truncate -s 20M holes && printf x >> holes && cp holes copy && cmp holes copy
         [ $(stat -c %b copy) -lt 100 ]");
    // The shell itself writes: a program that ends would close the file, and make the kernel send
    // what it holds.
    served.sh("mkfifo go
         { n=0; while [ $n -lt 3000 ]; do echo line $n; n=$((n + 1)); done
           : > all; read -r ignored < go; } > written &
         until [ -e all ]; do sleep 0.1; done
         cp written copy2 || failed=yes
         echo > go && wait && [ -z \"$failed\" ] && cmp written copy2");
    served.sh("cp holes copy3 && cmp holes copy3");
    served.finish();
}

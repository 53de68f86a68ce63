//! Many threads in one directory; the result is what each thread's own order leaves.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{OFlags, RenameFlags};

const THREADS: u32 = 6;
const STEPS: u32 = 250;

pub fn run(s: &mut Script) {
    s.tell("mkdir", mkdir("one", 0o755));
    s.tell("mkdir", mkdir("two", 0o755));
    let failed: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().filter_map(|thread| thread.join().expect("no panic").err()).collect()
    });
    s.tell("failed", failed.join(" | "));
    s.tell("one", list("one"));
    s.tell("two", list("two"));
    s.stat("one");
    s.stat("two");
    let mut sizes = String::new();
    for entry in
        rustix::fs::Dir::new(open("two", READ).expect("made")).expect("a directory").flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_file() {
            sizes += &format!(
                "{name}={} ",
                crate::answer::text(&content(&format!("two/{name}")).unwrap_or_default())
            );
        }
    }
    let mut sizes: Vec<&str> = sizes.split(' ').collect();
    sizes.sort_unstable();
    s.tell("contents", sizes.join(" ").into_bytes());
    shared(s);
}

/// Names of this thread alone, among those of the others.
fn work(thread: u32) -> Result<(), String> {
    for step in 0..STEPS {
        let name = |dir: &str, n: u32| format!("{dir}/t{thread}-{n}");
        let fail = |what: &str, error| format!("{thread}.{step} {what}: {error:?}");
        let path = name("one", step);
        put(&path, &pattern(step as usize * 7 % 3000, step)).map_err(|e| fail("put", e))?;
        match step % 5 {
            0 => unlink(&*path).map_err(|e| fail("unlink", e))?,
            1 => rename(&*path, &*name("two", step)).map_err(|e| fail("rename", e))?,
            2 => link(&*path, &*name("two", step)).map_err(|e| fail("link", e))?,
            3 => {
                let before = name("one", step - 1);
                rename_with(&path, &before, RenameFlags::EXCHANGE)
                    .map_err(|e| fail("exchange", e))?;
            }
            _ => {
                mkdir(&name("two", step), 0o755).map_err(|e| fail("mkdir", e))?;
                let inside = format!("{}/in", name("two", step));
                rename(&*path, &*inside).map_err(|e| fail("move in", e))?;
            }
        }
    }
    Ok(())
}

/// All threads write to one file: appends are whole, and none is lost.
fn shared(s: &mut Script) {
    s.tell("make", put("log", b""));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let file = open("log", OFlags::WRONLY | OFlags::APPEND).expect("just made");
                for _ in 0..200 {
                    let line = format!("{}\n", thread.to_string().repeat(30 + thread as usize));
                    let _ = rustix::io::write(&file, line.as_bytes());
                }
            });
        }
    });
    let bytes = content("log").expect("just made");
    let text = String::from_utf8_lossy(&bytes);
    let whole = (0..THREADS as usize).all(|thread| {
        let line = thread.to_string().repeat(30 + thread);
        text.lines().filter(|found| **found == line).count() == 200
    });
    s.tell("appends are whole", whole);
    s.stat("log");
    // Their order is random.
    s.tell("unlink", unlink("log"));
}

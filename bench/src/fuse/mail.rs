//! Mail: many small files that are delivered, read, extended and deleted, as Postmark does.
//!
//! ```text
//!   mail/box0 … box9/   tmp/ ── rename ──► new/
//!
//!   transaction    deliver or delete, then read or append; each with equal chance
//!   deliver        created in tmp, 512 to 9999 bytes, [fsync], renamed into new
//!   append         512 to 9999 bytes to a message
//!
//!   mail           nothing synced
//!   mail_fsync     an fsync for each delivered message
//! ```
//!
//! Each thread delivers to all mailboxes, and handles the messages that it delivered.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use extant::environment::{Rng, SeededRng};

use super::run::{Run, in_threads, threads};
use crate::rig;

/// Mailboxes.
const BOXES: u64 = 10;
/// Bytes of a message, and of what is appended to one: from the first number to below the second.
const BYTES: (u64, u64) = (512, 10_000);
/// Threads that handle mail at the same time.
const THREADS: [usize; 2] = [1, 4];

pub(super) const CASES: [&str; 2] = ["mail", "mail_fsync"];

pub(super) fn mail(run: &mut Run<'_>) -> Result<()> {
    for (case, syncs) in CASES.into_iter().zip([false, true]) {
        if !run.wants(case) {
            continue;
        }
        for count in THREADS {
            let dir = run.join("mail");
            make_boxes(&dir)?;
            let each = run.plan.messages / count as u64;
            let clients: Vec<u64> = (0..count as u64).collect();
            in_threads(&clients, |n| Client::new(&dir, *n, false).fill(each))?;
            rig::sync_filesystem(&dir)?;
            let seconds = in_threads(&clients, |n| {
                let mut client = Client::new(&dir, *n, syncs).with(each);
                (0..each).try_for_each(|_| client.transaction())
            })?;
            run.add(case, "ops_per_s", threads(count), (each * count as u64) as f64 / seconds);
            fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

fn make_boxes(dir: &Path) -> Result<()> {
    for n in 0..BOXES {
        for part in ["tmp", "new"] {
            fs::create_dir_all(dir.join(format!("box{n}")).join(part))?;
        }
    }
    Ok(())
}

/// One thread, and its messages.
struct Client<'a> {
    dir: &'a Path,
    number: u64,
    /// Whether each delivered message is synced.
    syncs: bool,
    rng: SeededRng,
    /// The messages that exist, by number. New ones follow the largest number so far.
    messages: Vec<u64>,
    next: u64,
    /// Source of all content.
    content: Vec<u8>,
    read: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(dir: &'a Path, number: u64, syncs: bool) -> Client<'a> {
        let content = vec![b'm'; BYTES.1 as usize];
        let rng = SeededRng::new(number);
        let (messages, read) = (Vec::new(), Vec::new());
        Client { dir, number, syncs, rng, messages, next: 0, content, read }
    }

    /// The same after `fill(count)`.
    fn with(self, count: u64) -> Client<'a> {
        Client { messages: (0..count).collect(), next: count, ..self }
    }

    /// Delivers the first `count` messages.
    fn fill(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.deliver())
    }

    fn transaction(&mut self) -> Result<()> {
        match self.chance() {
            true => self.deliver()?,
            false => self.delete()?,
        }
        let Some(message) = self.any() else { return Ok(()) };
        let path = self.path(self.messages[message], "new");
        if self.chance() {
            self.read.clear();
            File::open(path)?.read_to_end(&mut self.read)?;
        } else {
            OpenOptions::new().append(true).open(path)?.write_all(self.piece())?;
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<()> {
        let message = self.next;
        self.next += 1;
        let (from, to) = (self.path(message, "tmp"), self.path(message, "new"));
        let mut file = File::create_new(&from)?;
        file.write_all(self.piece())?;
        if self.syncs {
            file.sync_all()?;
        }
        fs::rename(from, to)?;
        self.messages.push(message);
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let Some(place) = self.any() else { return Ok(()) };
        let message = self.messages.swap_remove(place);
        Ok(fs::remove_file(self.path(message, "new"))?)
    }

    /// The place of a message in the list.
    fn any(&self) -> Option<usize> {
        let place = self.rng.next_u64().checked_rem(self.messages.len() as u64)?;
        Some(place as usize)
    }

    /// Content of random length.
    fn piece(&self) -> &[u8] {
        let len = BYTES.0 + self.rng.next_u64() % (BYTES.1 - BYTES.0);
        &self.content[..len as usize]
    }

    fn chance(&self) -> bool {
        self.rng.next_u64().is_multiple_of(2)
    }

    fn path(&self, message: u64, part: &str) -> PathBuf {
        let mailbox = format!("box{}", message % BOXES);
        self.dir.join(mailbox).join(part).join(format!("{message}.{}", self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_leave_the_messages_that_the_client_knows() {
        let dir = tempfile::tempdir().expect("a directory");
        make_boxes(dir.path()).expect("boxes");
        Client::new(dir.path(), 3, false).fill(50).expect("filled");
        let mut client = Client::new(dir.path(), 3, true).with(50);
        (0..200).try_for_each(|_| client.transaction()).expect("transactions");
        assert!(client.next > 50 && client.messages.len() < 250);
        for message in 0..client.next {
            let exists = client.path(message, "new").exists();
            assert_eq!(exists, client.messages.contains(&message), "message {message}");
            assert!(!client.path(message, "tmp").exists(), "message {message}");
        }
    }
}

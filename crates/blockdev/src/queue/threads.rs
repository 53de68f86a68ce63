//! Transfers on threads, one at a time on each.
//!
//! ```text
//!   submit ──► todo ──► thread: positional I/O ──► done ──► wait
//! ```

use super::now::transfer_checked;
use super::{Completion, Request};
use crate::device::BlockDevice;
use crate::range::failed;
use extant_base::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A disk that has no ring gains nothing from more threads.
const MOST: usize = 8;

pub(super) struct Threads<'m> {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
    under_way: usize,
    _memory: PhantomData<Request<'m>>,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    lists: Mutex<Lists>,
    work: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct Lists {
    /// The memory of these requests is valid as long as the queue exists: see `submit`.
    todo: VecDeque<Request<'static>>,
    done: VecDeque<(Request<'static>, Result<()>)>,
    idle: usize,
    ends: bool,
}

impl<'m> Threads<'m> {
    pub(super) fn new(device: Arc<dyn BlockDevice>, depth: usize) -> Threads<'m> {
        let lists = Mutex::new(Lists::default());
        let (work, finished) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { device, lists, work, finished });
        Threads {
            shared,
            threads: Vec::new(),
            most: depth.min(MOST),
            under_way: 0,
            _memory: PhantomData,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn submit(&mut self, request: Request<'m>) {
        // SAFETY: only the lifetime changes. The request is returned or dropped before this queue
        // is gone (`drop` waits for all), and the queue lives no longer than `'m`: see `scope`.
        let request = unsafe { std::mem::transmute::<Request<'m>, Request<'static>>(request) };
        self.under_way += 1;
        let mut lists = self.shared.lists.lock();
        lists.todo.push_back(request);
        let more = lists.idle < lists.todo.len() && self.threads.len() < self.most;
        drop(lists);
        self.shared.work.notify_one();
        if more {
            let shared = Arc::clone(&self.shared);
            let started =
                std::thread::Builder::new().name("extant-io".into()).spawn(move || shared.serve());
            match started {
                Ok(thread) => self.threads.push(thread),
                // No thread could be started: this one runs the transfer.
                Err(_) if self.threads.is_empty() => self.shared.serve_one(),
                Err(_) => {}
            }
        }
    }

    pub(super) fn poll(&mut self) -> Option<Completion<'m>> {
        let (request, result) = self.shared.lists.lock().done.pop_front()?;
        self.under_way -= 1;
        Some(Completion { request, result })
    }

    pub(super) fn wait(&mut self) -> Option<Completion<'m>> {
        if self.under_way == 0 {
            return None;
        }
        let mut lists = self.shared.lists.lock();
        while lists.done.is_empty() {
            self.shared.finished.wait(&mut lists);
        }
        drop(lists);
        self.poll()
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let mut lists = self.lists.lock();
            while lists.todo.is_empty() {
                if lists.ends {
                    return;
                }
                lists.idle += 1;
                self.work.wait(&mut lists);
                lists.idle -= 1;
            }
            drop(lists);
            self.serve_one();
        }
    }

    fn serve_one(&self) {
        let Some(mut request) = self.lists.lock().todo.pop_front() else { return };
        let moved =
            catch_unwind(AssertUnwindSafe(|| transfer_checked(&*self.device, &mut request)));
        let result = moved.unwrap_or_else(|_| {
            let error = io::Error::other("the device panicked");
            Err(failed(request.op(), request.at, request.memory.len() as u64, error))
        });
        self.lists.lock().done.push_back((request, result));
        self.finished.notify_one();
    }
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        while self.wait().is_some() {}
        self.shared.lists.lock().ends = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // The thread catches panics of the device.
            let _ = thread.join();
        }
    }
}

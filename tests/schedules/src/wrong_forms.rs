//! Wrong forms of the code, each of which the explorer must find: their place, the right form and
//! the wrong one.

/// A place in the sources, and a wrong form of the code there.
#[allow(dead_code, reason = "the build script reads what the tests do not")]
pub(crate) struct WrongForm {
    pub(crate) name: &'static str,
    /// Module, and file below its folder.
    pub(crate) file: &'static str,
    /// The text before the place, which makes the match unique.
    pub(crate) before: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

const fn form(
    name: &'static str,
    file: &'static str,
    [before, right, wrong]: [&'static str; 3],
) -> WrongForm {
    WrongForm { name, file, before, right, wrong }
}

pub(crate) const WRONG_FORMS: &[WrongForm] = &[
    // Journal: waiting threads are notified.
    form(
        "no thread is woken when handles may start again",
        "journal/commit/transactions.rs",
        ["state.locked = false;\n        ", "self.opened.notify_all();", ""],
    ),
    form(
        "the leader is not woken when the last handle stops",
        "journal/commit/transactions.rs",
        ["", "self.idle.notify_all();", ""],
    ),
    form(
        "no thread is woken when a commit ends",
        "journal/commit/leader.rs",
        ["", "self.transactions.ended.notify_all();", ""],
    ),
    form(
        "the loader of a block does not see a waiting reader",
        "journal/cache/load.rs",
        ["", "drop(self.loading.lock());", ""],
    ),
    // Journal: a handle is whole or absent.
    form(
        "a commit does not wait for running handles",
        "journal/commit/transactions.rs",
        ["while ", "state.running.handles > 0", "false"],
    ),
    form(
        "what a commit has not copied is not kept aside",
        "journal/cache/block.rs",
        ["", "self.freeze(content);", ""],
    ),
    form(
        "a block goes home though a later handle changed it",
        "journal/cache/block.rs",
        [
            "",
            "self.joined.load(Ordering::Relaxed) == seq && self.mark_dirty()",
            "self.mark_dirty()",
        ],
    ),
    // Journal: what is durable stays so.
    form(
        "the commit block does not wait for what it closes",
        "journal/commit/full_commit.rs",
        ["", "self.area.device().flush()?;", ""],
    ),
    form(
        "a flush does not wait for concurrent ones that may fail",
        "journal/log/watched.rs",
        ["while ", "syncs.in_flight.iter().any(|nr| *nr <= begun)", "false"],
    ),
    form(
        "a flush that failed is forgotten",
        "journal/log/watched.rs",
        ["if ", "kind == Kind::Flush && syncs.failed > 0", "false"],
    ),
    form(
        "the tail moves before blocks are durable at home",
        "journal/commit/checkpoint.rs",
        ["return Ok(());\n        }\n        ", "self.cache.flush()?;", ""],
    ),
    form(
        "an older tail follows a newer one",
        "journal/commit/checkpoint.rs",
        ["if ", "new.seq > current.seq", "true"],
    ),
    form("a freed block is not revoked", "journal/handle.rs", ["", "done.revoked.push(nr);", ""]),
    form(
        "a transaction counts as durable before its commit block is",
        "journal/commit/full_commit.rs",
        [
            "",
            "self.seal(closing.tid, at)?;",
            "self.durable.store(closing.seq, Ordering::Release); self.seal(closing.tid, at)?;",
        ],
    ),
    form(
        "waiters go on before a commit's blocks are to go home",
        "journal/commit/full_commit.rs",
        [
            "",
            "self.cache.checkpoint_queue.lock().push(list);\n        self.durable.store(closing.seq, Ordering::Release);",
            "self.durable.store(closing.seq, Ordering::Release); \
             self.ended.wait_soon(&mut state, &mut extant_base::lock::Patience::default()); \
             self.cache.checkpoint_queue.lock().push(list);",
        ],
    ),
    // Journal: fast commits.
    form(
        "a fast commit tells of handles that still run",
        "journal/commit/fast_commit.rs",
        ["", "self.lock_running(&mut state);", "state.running.handles += 0;"],
    ),
    form(
        "a fast commit counts for handles that came after it",
        "journal/commit/fast_commit.rs",
        [
            "",
            "self.state.lock().recorded = mark;",
            "let mut state = self.state.lock(); \
             let nr = self.numbers.load(Ordering::Acquire); \
             state.recorded = RecordedMark { nr, ..mark };",
        ],
    ),
    // Page cache: states of folios.
    form(
        "a folio on its way is evicted",
        "pagecache/shared.rs",
        ["", "folio.dirty_count() + folio.writing_count() > 0", "folio.dirty_count() > 0"],
    ),
    form(
        "what is changed on its way lands clean",
        "pagecache/folio.rs",
        [
            "let ended = ",
            "self.writing.clear(blocks)",
            "self.dirty_count -= self.dirty.clear(blocks.clone()); self.writing.clear(blocks)",
        ],
    ),
    form(
        "bytes are neither dirty nor on their way for a moment",
        "pagecache/file/dirty.rs",
        [
            "",
            "self.changing.blocks.fetch_add((count << 32).wrapping_sub(count), AcqRel);",
            "self.changing.blocks.fetch_sub(count, AcqRel); \
             self.changing.blocks.fetch_add(count << 32, AcqRel);",
        ],
    ),
    form(
        "an overwrite does not look at the length under the folio's lock",
        "pagecache/file/write.rs",
        ["", "end <= self.len() && self.hits.load(Acquire) && may()", "may()"],
    ),
    form(
        "blocks land in whatever folio is in the slot now",
        "pagecache/file/dirty.rs",
        [
            "if ",
            "!folio.holds(self.id, part.start) || folio.start() != part.start",
            "folio.file.is_none()",
        ],
    ),
    // Page cache: the account, and the threads that wait for it.
    form(
        "a folio that loses its mark leaves its bytes in the account",
        "pagecache/shared.rs",
        [
            "",
            "self.account.unmarked(folio.size(), dirty, writing);",
            "self.account.unmarked(folio.size(), 0, 0);",
        ],
    ),
    form(
        "a waiter at the gate is not woken when space is free",
        "pagecache/writeback/account.rs",
        ["", "self.gate.level_fell(|| self.marked_held());", ""],
    ),
    form(
        "a waiter at the gate checks before it is counted",
        "pagecache/writeback/gate.rs",
        [
            "",
            "self.waiting.fetch_add(1, Ordering::SeqCst);",
            "if !self.try_reserve(bytes, &held) { self.waiting.fetch_add(1, Ordering::SeqCst); \
             queue.push_back((waiter.clone(), bytes)); \
             waiter.changed.wait_for(&mut queue, RECHECK); \
             } else { self.reserved.fetch_sub(bytes, Ordering::SeqCst); \
             self.waiting.fetch_add(1, Ordering::SeqCst); }",
        ],
    ),
    form(
        "the gate looks at the room and takes it in two steps",
        "pagecache/writeback/gate.rs",
        [
            "let reserved = ",
            "self.reserved.fetch_add(bytes, Ordering::SeqCst) + bytes",
            "let reserved = self.reserved.load(Ordering::SeqCst) + bytes; \
             self.reserved.fetch_add(bytes, Ordering::SeqCst); reserved",
        ],
    ),
    form(
        "a writer does not notify the flusher of its bytes",
        "pagecache/writeback/direct.rs",
        ["DontCachePolicy::Flusher if finished_a_page || !was_listed => ", "self.kick.kick()", ""],
    ),
    // Direct transfers.
    form(
        "a waiter for a direct transfer is not woken at its end",
        "transfers/mod.rs",
        ["drop(state);\n        ", "self.changed.notify_all();", ""],
    ),
    form(
        "a direct transfer begins in a closed file",
        "transfers/mod.rs",
        ["if ", "state.closed > 0", "false"],
    ),
    form(
        "a waiter for the file to open is not woken",
        "transfers/mod.rs",
        ["self.0.state.lock().closed -= 1;\n        ", "self.0.changed.notify_all();", ""],
    ),
];

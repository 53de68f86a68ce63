//! The order of visits, step by step.

use super::*;
use crate::writeback::dirty_list::{DirtyList, Reason, TAIL_DELAY, Visit};

const MS: Duration = Duration::from_millis(1);

fn dirty_files(list: &mut DirtyList<FakeFile>, count: u32, at: Instant) -> Vec<Arc<FakeFile>> {
    let file = |n| {
        let file = Arc::new(FakeFile::with_dirty(10 * PAGE));
        list.dirtied(&file, at + n * MS);
        file
    };
    (0..count).map(file).collect()
}

fn pick(list: &mut DirtyList<FakeFile>, reason: Reason, now: Instant) -> Option<Visit<FakeFile>> {
    list.pick(reason, 4 * PAGE, now, &mut Vec::new())
}

#[test]
fn a_file_is_written_in_parts_and_then_moves_to_the_back() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let files = dirty_files(&mut list, 2, now);
    let mut order = Vec::new();
    for n in 0..7 {
        let visit = pick(&mut list, Reason::Oldest, now + (10 + n) * MS).unwrap();
        order.push((visit.file.state().id() == files[0].state().id(), visit.range.start / PAGE));
        list.done(&visit, Some(4 * PAGE), now + (10 + n) * MS);
    }
    // Ten pages were dirty when the pass began, so it takes three visits. Both files stay dirty.
    let first = [(true, 0), (true, 4), (true, 8)];
    let second = [(false, 0), (false, 4), (false, 8)];
    assert_eq!(order, [&first[..], &second, &[(true, 12)]].concat());
}

#[test]
fn after_a_visit_that_reaches_the_end_the_next_one_starts_at_zero() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let _files = dirty_files(&mut list, 1, now);
    for (start, written) in [(0, 4), (4, 4), (8, 2), (0, 4), (4, 1), (0, 4)] {
        let visit = pick(&mut list, Reason::Oldest, now).unwrap();
        assert_eq!(visit.range, start * PAGE..u64::MAX);
        list.done(&visit, Some(written * PAGE), now);
    }
}

#[test]
fn every_other_visit_goes_to_a_marked_file() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let files = dirty_files(&mut list, 3, now);
    list.drop_behind(files[2].state().id());
    assert!(files[2].state().is_listed_as_drop_behind());
    let mut seen = Vec::new();
    for _ in 0..4 {
        let visit = pick(&mut list, Reason::DropBehind { spare_tails: true }, now).unwrap();
        seen.push(files.iter().position(|file| Arc::ptr_eq(file, &visit.file)).unwrap());
        list.done(&visit, Some(PAGE), now);
    }
    assert_eq!(seen, [2, 0, 2, 0]);
}

#[test]
fn the_delay_of_a_failing_file_doubles() {
    let (mut list, mut now) = (DirtyList::new(PAGE), Instant::now());
    let _files = dirty_files(&mut list, 1, now);
    for delay in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        let visit = pick(&mut list, Reason::Oldest, now).unwrap();
        list.done(&visit, None, now);
        assert!(list.is_stuck());
        assert_eq!(list.next_due(Duration::ZERO, now), Some(now + delay * MS));
        assert!(pick(&mut list, Reason::Oldest, now + (delay - 1) * MS).is_none());
        now += delay * MS;
    }
    let visit = pick(&mut list, Reason::Oldest, now).unwrap();
    list.done(&visit, Some(PAGE), now);
    assert!(!list.is_stuck());
}

#[test]
fn an_unfinished_page_is_spared_while_its_writer_goes_on() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let files = dirty_files(&mut list, 1, now);
    let (file, reason) = (&files[0], Reason::DropBehind { spare_tails: true });
    assert!(file.state().wrote(&(0..9 * PAGE + 1), PAGE));
    list.drop_behind(file.state().id());
    let visit = pick(&mut list, reason, now).unwrap();
    assert_eq!(visit.range, 0..9 * PAGE);
    file.clean(9 * PAGE);
    list.done(&visit, Some(9 * PAGE), now);
    assert!(pick(&mut list, reason, now).is_none());
    assert!(!file.state().is_listed_as_drop_behind());
    // The flusher writes the page once it is finished, or time goes by, or too much is dirty.
    assert!(file.state().wrote(&(9 * PAGE + 1..10 * PAGE), PAGE));
    list.drop_behind(file.state().id());
    let visit = pick(&mut list, reason, now).unwrap();
    assert_eq!(visit.range, 9 * PAGE..u64::MAX);
    file.clean(PAGE);
    list.done(&visit, Some(PAGE), now);
    assert!(list.dirty_files(&mut Vec::new()).is_empty() && list.next_due(MS, now).is_none());
    assert!(!file.state().wrote(&(0..1), PAGE));
    file.dirty(PAGE);
    list.dirtied(file, now);
    list.drop_behind(file.state().id());
    assert!(pick(&mut list, reason, now).is_none());
    assert!(pick(&mut list, reason, now + 2 * TAIL_DELAY).is_some());
}

#[test]
fn the_dirty_files_are_in_order_and_clean_ones_leave_the_list() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let files = dirty_files(&mut list, 4, now);
    let found = |list: &mut DirtyList<FakeFile>| -> Vec<usize> {
        let of = |file| files.iter().position(|other| Arc::ptr_eq(other, file)).unwrap();
        list.dirty_files(&mut Vec::new()).iter().map(of).collect()
    };
    assert_eq!(found(&mut list), [0, 1, 2, 3]);
    // One is clean in the middle of a visit, one is delayed.
    let in_visit = pick(&mut list, Reason::Oldest, now).unwrap();
    let failed = pick(&mut list, Reason::Oldest, now).unwrap();
    list.done(&failed, None, now);
    files.iter().take(3).for_each(|file| file.clean(10 * PAGE));
    assert_eq!(found(&mut list), [3]);
    list.done(&in_visit, Some(10 * PAGE), now);
    assert_eq!(list.next_due(MS, now), Some(now + 4 * MS), "only the last one is left");
    assert!(!list.is_stuck());
    files[1].dirty(PAGE);
    list.dirtied(&files[1], now + 5 * MS);
    assert_eq!(found(&mut list), [3, 1]);
}

#[test]
fn picking_by_age_takes_old_files_only() {
    let (mut list, now) = (DirtyList::new(PAGE), Instant::now());
    let files = dirty_files(&mut list, 3, now);
    let old = Reason::Since(now + MS);
    let first = pick(&mut list, old, now + 9 * MS).unwrap();
    let second = pick(&mut list, old, now + 9 * MS).unwrap();
    assert!(Arc::ptr_eq(&first.file, &files[0]) && Arc::ptr_eq(&second.file, &files[1]));
    assert!(pick(&mut list, old, now + 9 * MS).is_none());
    // Written by another thread and dirty again: young.
    list.dirtied(&files[2], now + 5 * MS);
    assert_eq!(list.next_due(MS, now), Some(now + 6 * MS));
    assert_eq!(list.next_due(MS, now + 8 * MS), Some(now + 8 * MS), "not sooner");
}

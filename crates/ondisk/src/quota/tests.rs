//! The tree is compared with plain maps; trees with loops are errors.

use super::*;
use alloc::collections::BTreeMap;

fn entry(id: u32) -> QuotaEntry {
    QuotaEntry { id, inodes: u64::from(id) + 1, space: 4096 * u64::from(id), ..Default::default() }
}

fn open(file: &[u8], kind: QuotaKind) -> Result<QuotaInfo, Error> {
    let blocks = file.len() / QUOTA_BLOCK;
    QuotaInfo::check(file[..QUOTA_BLOCK].try_into().unwrap(), kind, blocks as u32)
}

#[test]
fn every_entry_is_found_again_and_in_order() {
    let ids = [0, 1, 2, 255, 256, 1000, 65534, 65535, 65536, 1 << 24, u32::MAX];
    let all: Vec<u32> = ids.into_iter().chain(5000..5100).collect();
    let mut file = QuotaInfo::build(QuotaKind::User, all.iter().map(|id| entry(*id)));
    let info = open(&file, QuotaKind::User).unwrap();
    for id in &all {
        assert_eq!(info.get(&mut file, *id).unwrap(), Some(entry(*id)), "{id}");
    }
    assert_eq!(info.get(&mut file, 77).unwrap(), None);
    let mut walked = Vec::new();
    info.for_each(&mut file, |entry| {
        walked.push(entry.id);
        Ok(())
    })
    .unwrap();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(walked, sorted);
    assert_eq!(info.blocks as usize * QUOTA_BLOCK, file.len());
}

#[test]
fn an_entry_is_replaced_in_its_place() {
    let mut file = QuotaInfo::build(QuotaKind::Group, [entry(7)]);
    let len = file.len();
    let mut info = open(&file, QuotaKind::Group).unwrap();
    let changed = QuotaEntry { space_hard_kib: 10, inodes: 0, ..entry(7) };
    info.put(&mut file, &changed).unwrap();
    assert_eq!(info.get(&mut file, 7).unwrap(), Some(changed));
    assert_eq!(file.len(), len);
}

#[test]
fn a_used_entry_of_zeros_is_not_a_free_slot() {
    let nothing = QuotaEntry::default();
    let mut file = QuotaInfo::build(QuotaKind::Project, [nothing]);
    let info = open(&file, QuotaKind::Project).unwrap();
    assert_eq!(info.get(&mut file, 0).unwrap(), Some(nothing));
    assert!(open(&file, QuotaKind::User).is_err(), "the magic names the kind");
}

#[test]
fn a_tree_that_loops_is_an_error() {
    let mut file = QuotaInfo::build(QuotaKind::User, [entry(7)]);
    let info = open(&file, QuotaKind::User).unwrap();
    // The root's pointer for ids from 2^24 on leads to the same block as that of id 7.
    let first: [u8; 4] = file[1024..1028].try_into().unwrap();
    file[1028..1032].copy_from_slice(&first);
    assert!(info.for_each(&mut file, |_| Ok(())).is_err());
    file[1028..1032].copy_from_slice(&1u32.to_le_bytes());
    assert!(info.for_each(&mut file, |_| Ok(())).is_err());
}

#[test]
fn an_entry_that_no_path_leads_to_is_a_stray() {
    let mut file = QuotaInfo::build(QuotaKind::User, [entry(3), entry(7)]);
    let info = open(&file, QuotaKind::User).unwrap();
    assert_eq!(info.stray(&mut file).unwrap(), None);
    let (leaf, _) = info.place(&mut file, 7).unwrap().unwrap();
    // A third entry, all zeros but its grace time.
    file[leaf as usize * QUOTA_BLOCK + 16 + 2 * 72 + 56] = 1;
    assert_eq!(info.stray(&mut file).unwrap(), Some(leaf));
    let mut ids = Vec::new();
    let note = |entry: QuotaEntry| {
        ids.push(entry.id);
        Ok(())
    };
    info.for_each(&mut file, note).unwrap();
    assert_eq!(ids, [3, 7]);
}

#[test]
fn entries_come_and_go_and_the_blocks_are_used_again() {
    let mut file = QuotaInfo::build(QuotaKind::User, [entry(0)]);
    let mut info = open(&file, QuotaKind::User).unwrap();
    let mut model = BTreeMap::from([(0, entry(0))]);
    let (mut seed, mut most) = (1u64, 0);
    for step in 0..6000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let id = (seed >> 40) as u32 % 97 * ((seed >> 33) as u32 % 3 * 300_000 + 1);
        // Fills, then empties, then fills again.
        let grow = step % 3000 < 1500;
        if (seed >> 60 < 12) == grow {
            info.put(&mut file, &entry(id)).unwrap();
            model.insert(id, entry(id));
        } else {
            assert_eq!(info.remove(&mut file, id).unwrap(), model.remove(&id).is_some());
        }
        most = most.max(model.len());
        if step % 500 == 499 {
            info = open(&file, QuotaKind::User).unwrap();
            let mut walked = Vec::new();
            let note = |entry| {
                walked.push(entry);
                Ok(())
            };
            info.for_each(&mut file, note).unwrap();
            assert_eq!(walked, model.values().copied().collect::<Vec<_>>());
        }
    }
    assert!(most > 100 && model.len() < most);
    for id in model.keys().copied().collect::<Vec<_>>() {
        assert!(info.remove(&mut file, id).unwrap());
    }
    assert!(file[1024..2048].iter().all(|byte| *byte == 0), "the root is empty");
    let blocks = info.blocks;
    info.put(&mut file, &entry(5)).unwrap();
    assert_eq!(info.blocks, blocks, "a new entry reuses the freed blocks");
}

#[test]
fn a_leaf_that_its_neighbours_do_not_link_is_an_error() {
    let mut file = QuotaInfo::build(QuotaKind::User, (0..15).map(entry));
    let mut info = open(&file, QuotaKind::User).unwrap();
    let leaf = info.free_entry as usize * QUOTA_BLOCK;
    file[leaf..leaf + 4].copy_from_slice(&2u32.to_le_bytes());
    assert!(info.remove(&mut file, 14).is_err());
}

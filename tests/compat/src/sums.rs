//! Corrects the checksums of damaged structures, so that their content is accepted.
//!
//! ```text
//!   places, in order:  slot of inode 12 │ its attribute block │ its blocks … │ slot of inode 13 …
//!   deepest first:   blocks ► slots ► bitmaps, into descriptors ► descriptors ► superblock
//! ```
//! Source: ext4 documentation, "Checksums". If a damaged length leaves no space for a checksum,
//! none is set.

use crate::volume::{Kind, Place, Rich};
use extant_crc32c::crc32c;

/// Fields of a volume that its checksums depend on, read before it is damaged.
#[derive(Debug)]
pub struct Sums {
    seed: u32,
    block: usize,
    inode_size: usize,
    inodes_per_group: usize,
    clusters_per_group: usize,
    desc_size: usize,
    groups: usize,
    tables: Vec<usize>,
    /// Positions of blocks of the file of data checksums, and their numbers in the file.
    data_sums: Vec<(usize, u64)>,
    /// Each structure and the slot of the inode that it belongs to.
    places: Vec<(Place, Option<usize>)>,
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn set(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

impl Sums {
    /// `None` if the volume has no checksums.
    pub fn of(rich: &Rich) -> Option<Sums> {
        let sb = &rich.bytes[1024..2048];
        // s_feature_ro_compat: METADATA_CSUM.
        if u32_at(sb, 0x64) & 0x400 == 0 {
            return None;
        }
        // s_feature_incompat: CSUM_SEED, 64BIT.
        let seed = match u32_at(sb, 0x60) & 0x2000 {
            0 => crc32c(!0, &sb[0x68..0x78]),
            _ => u32_at(sb, 0x270),
        };
        let desc_size = if u32_at(sb, 0x60) & 0x80 == 0 { 32 } else { u16_at(sb, 0xFE) };
        let blocks_per_group = u32_at(sb, 0x20) as usize;
        let first = u32_at(sb, 0x14) as usize;
        let groups = (u32_at(sb, 4) as usize - first).div_ceil(blocks_per_group);
        let table = |group| u32_at(&rich.bytes, (first + 1) * rich.block + group * desc_size + 8);
        let mut owner = None;
        let places = rich.places.iter().map(|place| {
            match place.kind {
                Kind::Inode => owner = Some(place.at),
                Kind::Superblock | Kind::Descriptors | Kind::BlockBitmap | Kind::InodeBitmap => {
                    owner = None;
                }
                _ => {}
            }
            (*place, owner)
        });
        let data_sums = rich.places.iter().filter(|place| place.kind == Kind::Sums);
        let data_sums = data_sums.filter_map(|place| {
            let bytes = &rich.bytes[place.at..place.at + place.len];
            let stored = u32_at(bytes, bytes.len() - 4);
            // A block in which nothing was stored yet is zero. Others name their number.
            let number = (0..1 << 12).find(|n| data_sum(seed, *n, bytes) == stored);
            assert!(number.is_some() || bytes.iter().all(|byte| *byte == 0), "{place:?}");
            Some((place.at, number?))
        });
        let data_sums = data_sums.collect();
        Some(Sums {
            data_sums,
            seed,
            block: rich.block,
            inode_size: u16_at(sb, 0x58),
            inodes_per_group: u32_at(sb, 0x28) as usize,
            clusters_per_group: u32_at(sb, 0x24) as usize,
            desc_size,
            groups,
            tables: (0..groups).map(|group| table(group) as usize * rich.block).collect(),
            places: places.collect(),
        })
    }

    /// Computes every checksum again that covers a difference from `whole`.
    pub fn set_all(&self, whole: &[u8], bytes: &mut [u8]) {
        let changed =
            |bytes: &[u8], at: usize, len: usize| bytes[at..at + len] != whole[at..at + len];
        for (place, owner) in &self.places {
            if place.kind != Kind::Inode && changed(bytes, place.at, place.len) {
                self.block(bytes, place, *owner);
            }
        }
        for (place, _) in &self.places {
            if place.kind == Kind::Inode && changed(bytes, place.at, self.inode_size) {
                self.slot(bytes, place.at);
            }
        }
        let descriptors = (1024 / self.block + 1) * self.block;
        for group in 0..self.groups {
            let at = descriptors + group * self.desc_size;
            for (field, low, high, bits) in
                [(0, 0x18, 0x38, self.clusters_per_group), (4, 0x1A, 0x3A, self.inodes_per_group)]
            {
                let bitmap = u32_at(whole, at + field) as usize * self.block;
                if changed(bytes, bitmap, self.block) {
                    let sum = crc32c(self.seed, &bytes[bitmap..bitmap + bits / 8]).to_le_bytes();
                    bytes[at + low..at + low + 2].copy_from_slice(&sum[..2]);
                    if self.desc_size >= 64 {
                        bytes[at + high..at + high + 2].copy_from_slice(&sum[2..]);
                    }
                }
            }
            if changed(bytes, at, self.desc_size) {
                bytes[at + 0x1E..at + 0x20].fill(0);
                let sum = crc32c(self.seed, &(group as u32).to_le_bytes());
                let sum = crc32c(sum, &bytes[at..at + self.desc_size]).to_le_bytes();
                bytes[at + 0x1E..at + 0x20].copy_from_slice(&sum[..2]);
            }
        }
        if changed(bytes, 1024, 1024) {
            let sum = crc32c(!0, &bytes[1024..2044]);
            set(bytes, 2044, sum);
        }
    }

    /// The seed of the checksums of an inode and of its blocks.
    fn seed_of(&self, bytes: &[u8], slot: usize) -> u32 {
        let per_group = self.inodes_per_group * self.inode_size;
        let group =
            self.tables.iter().position(|table| (*table..table + per_group).contains(&slot));
        let group = group.expect("it lies in a table");
        let index = (slot - self.tables[group]) / self.inode_size;
        let ino = (group * self.inodes_per_group + index + 1) as u32;
        crc32c(crc32c(self.seed, &ino.to_le_bytes()), &bytes[slot + 0x64..slot + 0x68])
    }

    fn slot(&self, bytes: &mut [u8], slot: usize) {
        let wide = self.inode_size > 128 && u16_at(bytes, slot + 0x80) >= 4;
        bytes[slot + 0x7C..slot + 0x7E].fill(0);
        if wide {
            bytes[slot + 0x82..slot + 0x84].fill(0);
        }
        let sum = crc32c(self.seed_of(bytes, slot), &bytes[slot..slot + self.inode_size]);
        let sum = sum.to_le_bytes();
        bytes[slot + 0x7C..slot + 0x7E].copy_from_slice(&sum[..2]);
        if wide {
            bytes[slot + 0x82..slot + 0x84].copy_from_slice(&sum[2..]);
        }
    }

    fn block(&self, bytes: &mut [u8], place: &Place, owner: Option<usize>) {
        let seed = owner.map(|slot| self.seed_of(bytes, slot));
        let number = ((place.at / self.block) as u64).to_le_bytes();
        let bytes = &mut bytes[place.at..place.at + place.len];
        let end = bytes.len();
        match (place.kind, seed) {
            (Kind::Attributes, _) => {
                bytes[0x10..0x14].fill(0);
                let sum = crc32c(crc32c(self.seed, &number), bytes);
                set(bytes, 0x10, sum);
            }
            (Kind::MapNode, Some(seed)) => {
                let tail = 12 + 12 * u16_at(bytes, 4);
                if tail + 4 <= end {
                    let sum = crc32c(seed, &bytes[..tail]);
                    set(bytes, tail, sum);
                }
            }
            (Kind::Orphans, Some(seed)) => {
                let sum = crc32c(crc32c(seed, &number), &bytes[..end - 8]);
                set(bytes, end - 4, sum);
            }
            (Kind::Directory, Some(seed))
                if bytes[end - 12..end - 4] == [0, 0, 0, 0, 12, 0, 0, 0xDE] =>
            {
                let sum = crc32c(seed, &bytes[..end - 12]);
                set(bytes, end - 4, sum);
            }
            (Kind::Directory, Some(seed)) => {
                // The root of an index has "." and ".." before its limit and count, a node has an
                // entry.
                let at = if u16_at(bytes, 4) == end { 8 } else { 0x20 };
                let (limit, count) = (u16_at(bytes, at), u16_at(bytes, at + 2));
                let (tail, used) = (at + limit * 8, at + count * 8);
                if tail + 8 <= end && used <= tail {
                    let sum = crc32c(crc32c(seed, &bytes[..used]), &bytes[tail..tail + 4]);
                    let sum = crc32c(sum, &[0; 4]);
                    set(bytes, tail + 4, sum);
                }
            }
            (Kind::Sums, _) => {
                if let Some((_, number)) = self.data_sums.iter().find(|(at, _)| *at == place.at) {
                    set(bytes, end - 4, data_sum(self.seed, *number, bytes));
                }
            }
            _ => {}
        }
    }
}

/// The checksum of block `number` of the file of data checksums.
fn data_sum(seed: u32, number: u64, bytes: &[u8]) -> u32 {
    crc32c(crc32c(seed, &number.to_le_bytes()), &bytes[..bytes.len() - 4])
}

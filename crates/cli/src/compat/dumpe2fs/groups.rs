//! The block groups: where their structures are, and what is free in them.

use crate::compat::console::Console;
use crate::compat::volume::RawVolume;
use crate::compat::words;
use crate::failure::Failure;
use extant::Error;
use extant_base::{BlockNr, GroupNr};
use extant_ondisk::bitmap;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags, compute_checksum};
use std::fmt::Write;
use std::ops::Range;

/// Prints a paragraph for each group.
pub(super) fn list(volume: &RawVolume, hex: bool, to: &mut Console) -> Result<(), Failure> {
    for group in volume.geometry.groups() {
        let text = Paragraph { volume, group, hex }.text();
        let text = text.map_err(|error| Failure::new(words::of(&error).text))?;
        to.print(format_args!("{text}"))?;
    }
    Ok(())
}

/// Prints a line of numbers for each group, for programs.
pub(super) fn table(volume: &RawVolume, to: &mut Console) -> Result<(), Failure> {
    to.print(format_args!("\ngroup:block:super:gdt:bbitmap:ibitmap:itable\n"))?;
    for group in volume.geometry.groups() {
        let desc = volume.descriptor(group);
        let desc = desc.map_err(|error| Failure::new(words::of(&error).text))?;
        let places = Places::of(volume, group);
        let first = volume.geometry.first_block(group).map_or(0, |block| block.0);
        let superblock = places.superblock.map_or("-1".to_owned(), |block| block.to_string());
        let descriptors = match (&places.old, places.new) {
            (Some(range), _) => format!("{}-{}", range.start, range.end - 1),
            (None, Some(block)) => block.to_string(),
            (None, None) => "-1".to_owned(),
        };
        to.print(format_args!(
            "{}:{first}:{superblock}:{descriptors}:{}:{}:{}\n",
            group.0, desc.block_bitmap.0, desc.inode_bitmap.0, desc.inode_table.0
        ))?;
    }
    Ok(())
}

/// Where a group's copies of superblock and descriptors are.
struct Places {
    superblock: Option<u64>,
    /// Descriptor blocks after the superblock.
    old: Option<Range<u64>>,
    /// A descriptor block of a meta group.
    new: Option<u64>,
    reserved: Option<Range<u64>>,
}

impl Places {
    fn of(volume: &RawVolume, group: GroupNr) -> Places {
        let geometry = &volume.geometry;
        let base = geometry.base_blocks(group).unwrap_or(0..0);
        let descriptors = u64::from(geometry.desc_blocks_in(group));
        let reserved = u64::from(geometry.reserved_gdt_in(group));
        let first = base.end - reserved.min(base.end - base.start);
        let first = first - descriptors.min(first - base.start);
        let meta = volume.sb.features.incompat.contains(Incompat::META_BG)
            && group.0 / geometry.descs_per_block() >= volume.sb.first_meta_bg;
        Places {
            superblock: geometry.has_super(group).then(|| first.saturating_sub(1)),
            old: (!meta && descriptors > 0).then(|| first..first + descriptors),
            new: (meta && descriptors > 0).then_some(first),
            reserved: (reserved > 0).then(|| first + descriptors..base.end),
        }
    }
}

struct Paragraph<'a> {
    volume: &'a RawVolume,
    group: GroupNr,
    hex: bool,
}

impl Paragraph<'_> {
    fn text(&self) -> Result<String, Error> {
        let (volume, group) = (self.volume, self.group);
        let bytes = volume.descriptor_bytes(group)?;
        let desc = GroupDesc::parse(&bytes);
        let blocks = volume.geometry.blocks_of_group(group).unwrap_or(0..1);
        let mut text = format!("Group {}: (Blocks {})", group.0, self.range(&blocks));
        self.push_checksum(&mut text, &bytes, &desc);
        self.push_places(&mut text);
        self.push_bitmap(&mut text, "Block", desc.block_bitmap, desc.block_bitmap_csum);
        self.push_bitmap(&mut text, "Inode", desc.inode_bitmap, desc.inode_bitmap_csum);
        let table = desc.inode_table.0;
        let table = table..table.saturating_add(volume.geometry.itable_blocks().into());
        let offset = self.offset(desc.inode_table);
        let _ = writeln!(text, "  Inode table at {}{offset}", self.range(&table));
        self.push_counts(&mut text, &desc);
        let map = volume.block_bitmap(group, &desc)?;
        self.push_free_blocks(&mut text, &map);
        let map = volume.inode_bitmap(&desc)?;
        self.push_free_inodes(&mut text, &map);
        Ok(text)
    }

    fn push_checksum(&self, text: &mut String, bytes: &[u8], desc: &GroupDesc) {
        let volume = self.volume;
        if let Some(right) = compute_checksum(bytes, self.group, &volume.checksums) {
            let stored = u16::from_le_bytes([bytes[0x1E], bytes[0x1F]]);
            let _ = write!(text, " csum {stored:#06x}");
            if stored != right {
                let _ = write!(text, " (EXPECTED {right:#06x})");
            }
            let names = [
                (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
                (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
                (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
            ];
            let on = names.iter().filter(|(flag, _)| desc.flags.contains(*flag));
            let on: Vec<&str> = on.map(|(_, name)| *name).collect();
            if !on.is_empty() {
                let _ = write!(text, " [{}]", on.join(", "));
            }
        }
        text.push('\n');
    }

    fn push_places(&self, text: &mut String) {
        let places = Places::of(self.volume, self.group);
        let mut words = Vec::new();
        if let Some(block) = places.superblock {
            let which = if self.group.0 == 0 { "Primary" } else { "Backup" };
            words.push(format!("{which} superblock at {}", self.number(block)));
        }
        if let Some(range) = &places.old {
            words.push(format!("Group descriptors at {}", self.range(range)));
        } else if let Some(block) = places.new {
            words.push(format!("Group descriptor at {}", self.number(block)));
        }
        if !words.is_empty() {
            let _ = writeln!(text, "  {}", words.join(", "));
        }
        if let Some(range) = &places.reserved {
            let _ = writeln!(text, "  Reserved GDT blocks at {}", self.range(range));
        }
    }

    fn push_bitmap(&self, text: &mut String, which: &str, block: BlockNr, checksum: u32) {
        let _ = write!(text, "  {which} bitmap at {}{}", self.number(block.0), self.offset(block));
        if self.volume.sb.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            let _ = write!(text, ", csum {checksum:#010x}");
        }
        text.push('\n');
    }

    fn push_counts(&self, text: &mut String, desc: &GroupDesc) {
        let bigalloc = self.volume.sb.features.ro_compat.contains(RoCompat::BIGALLOC);
        let unit = if bigalloc { "clusters" } else { "blocks" };
        let (free, inodes, dirs) = (desc.free_clusters, desc.free_inodes, desc.used_dirs);
        let _ = write!(text, "  {free} free {unit}, {inodes} free inodes, {dirs} directories");
        if desc.itable_unused != 0 {
            let _ = write!(text, ", {} unused inodes", desc.itable_unused);
        }
        text.push('\n');
    }

    fn push_free_blocks(&self, text: &mut String, map: &[u8]) {
        let geometry = &self.volume.geometry;
        let first = geometry.first_block(self.group).map_or(0, |block| block.0);
        let used = bitmap::Kind::Block.used_bits(geometry, self.group);
        let ratio = u64::from(geometry.cluster_ratio());
        let runs = bitmap::zero_runs(map, 0..used);
        let block = |bit: u32| first + u64::from(bit) * ratio;
        let words = runs.map(|run| self.run(block(run.start), block(run.end - 1)));
        let words: Vec<String> = words.collect();
        let _ = writeln!(text, "  Free blocks: {}", words.join(", "));
    }

    fn push_free_inodes(&self, text: &mut String, map: &[u8]) {
        let per_group = self.volume.geometry.inodes_per_group();
        let first = u64::from(self.group.0) * u64::from(per_group) + 1;
        let runs = bitmap::zero_runs(map, 0..per_group);
        let inode = |bit: u32| first + u64::from(bit);
        let words = runs.map(|run| self.run(inode(run.start), inode(run.end - 1)));
        let words: Vec<String> = words.collect();
        let _ = writeln!(text, "  Free inodes: {}", words.join(", "));
    }

    /// How far a structure is from the start of the group that it is in.
    fn offset(&self, block: BlockNr) -> String {
        let geometry = &self.volume.geometry;
        let Some(group) = geometry.group_of_block(block) else { return String::new() };
        let offset = block.0 - geometry.first_block(group).map_or(0, |first| first.0);
        match group == self.group {
            true => format!(" (+{offset})"),
            false => format!(" (bg #{} + {offset})", group.0),
        }
    }

    fn run(&self, first: u64, last: u64) -> String {
        match first == last {
            true => self.number(first),
            false => format!("{}-{}", self.number(first), self.number(last)),
        }
    }

    fn range(&self, range: &Range<u64>) -> String {
        format!("{}-{}", self.number(range.start), self.number(range.end.saturating_sub(1)))
    }

    fn number(&self, number: u64) -> String {
        let is_64bit = self.volume.sb.features.incompat.contains(Incompat::IS_64BIT);
        match (self.hex, is_64bit) {
            (false, _) => number.to_string(),
            (true, false) => format!("{number:#06x}"),
            (true, true) => format!("{number:#010x}"),
        }
    }
}

//! `extant info`: shows the properties of a volume, and the partitions of a disk.

mod partitions;

use crate::failure::{Failure, explained, print_message};
use crate::image::Image;
use crate::journal::JournalInfo;
use crate::members::LayoutInfo;
use crate::out::Out;
use crate::shown::{Shown, encoded, uuid};
use crate::{amount, moment};
use extant::superblock::Superblock;
use extant_base::{ByteOffset, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{
    ErrorPolicy, ErrorRecord, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use partitions::Partitions;
use serde::Serialize;
use std::ffi::OsString;

/// Show what a volume is (label, features, sizes, journal), or what is on a disk.
///
/// Of a disk with partitions, a list of them comes first. If one only has a volume, that volume
/// follows.
///
/// Values are those on disk: the journal is not replayed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant info disk.img
  extant info --json disk.img | jq -r .uuid
  extant info 'sd.img?partition=2'

Exit status: 0 shown, 1 neither a volume nor a disk, or one that cannot be opened (its superblock is still
shown).")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    image: String,
    label: String,
    uuid: String,
    state: &'static str,
    features: Vec<String>,
    block_bytes: usize,
    blocks: u64,
    free_blocks: u64,
    reserved_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_blocks: Option<u64>,
    inodes: u32,
    free_inodes: u32,
    inode_bytes: u16,
    first_inode: u32,
    cluster_bytes: u64,
    groups: Option<u32>,
    blocks_per_group: u32,
    inodes_per_group: u32,
    groups_per_flex: u32,
    descriptor_bytes: u16,
    hash_seed: String,
    created: u64,
    mounted: u64,
    written: u64,
    checked: u64,
    mount_count: u16,
    last_mounted: String,
    lifetime_kib: u64,
    on_errors: &'static str,
    error_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<LastError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<JournalInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<LayoutInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Partitions>,
}

#[derive(Serialize)]
struct LastError {
    time: u64,
    ino: u32,
    block: u64,
    function: String,
    line: u32,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let partitions = Partitions::of(&image);
        if let Some(partitions) = partitions.as_ref().filter(|_| image.len.is_none()) {
            return self.show_disk(&image, partitions);
        }
        let mut options = image.options();
        options.recover(false);
        let (superblock, journal, code) = match options.open(&image.path) {
            Ok(fs) => (fs.superblock().clone(), Some(JournalInfo::of(&fs)), 0),
            Err(error) => match bare_superblock(&image) {
                Some(superblock) => {
                    print_message(format_args!(
                        "{}: {}",
                        Shown::path(&image.name),
                        explained(&error)
                    ));
                    (superblock, None, 1)
                }
                None => return Err(Failure::of_image(&image.name, &error)),
            },
        };
        let info = Info { disk: partitions, ..Info::of(&image, &superblock, journal) };
        let mut out = Out::of_report();
        match self.json {
            true => out.json(&info)?,
            false => {
                if let Some(disk) = &info.disk {
                    disk.print(&mut out)?;
                    out.text(format_args!("\n"))?;
                }
                info.print(&superblock, &mut out)?;
            }
        }
        out.finish()?;
        Ok(code)
    }

    /// Shows a disk that has no volume, or several.
    fn show_disk(&self, image: &Image, disk: &Partitions) -> Result<u8, Failure> {
        use std::os::unix::ffi::OsStrExt;
        #[derive(Serialize)]
        struct Shown<'a> {
            image: String,
            disk: &'a Partitions,
        }
        let mut out = Out::of_report();
        match self.json {
            true => out.json(&Shown { image: encoded(image.name.as_os_str().as_bytes()), disk })?,
            false => disk.print(&mut out)?,
        }
        out.finish()?;
        Ok(0)
    }
}

/// The superblock of a volume that cannot be opened.
pub(crate) fn bare_superblock(image: &Image) -> Option<Superblock> {
    let device = image.options().assemble(&image.path).ok()?.device();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes).ok()?;
    let raw = RawSuperblock::from_prefix(&bytes)?;
    raw.parse(Site::NOWHERE).ok()
}

impl Info {
    fn of(image: &Image, sb: &Superblock, journal: Option<JournalInfo>) -> Info {
        use std::os::unix::ffi::OsStrExt;
        let seed: Vec<u8> = sb.hash_seed.iter().flat_map(|word| word.to_le_bytes()).collect();
        let seed: [u8; 16] = seed.try_into().expect("four words are 16 bytes");
        Info {
            image: encoded(image.name.as_os_str().as_bytes()),
            label: encoded(sb.label()),
            uuid: uuid(&sb.uuid),
            state: state(sb),
            features: sb.features.to_string().split_whitespace().map(String::from).collect(),
            block_bytes: sb.block_size.bytes(),
            blocks: sb.blocks_count,
            free_blocks: sb.free_blocks,
            reserved_blocks: sb.reserved_blocks,
            overhead_blocks: (sb.overhead_clusters > 0)
                .then(|| u64::from(sb.overhead_clusters) * u64::from(sb.cluster_ratio())),
            inodes: sb.inodes_count,
            free_inodes: sb.free_inodes,
            inode_bytes: sb.inode_size,
            first_inode: sb.first_ino,
            cluster_bytes: (sb.block_size.bytes() as u64) * u64::from(sb.cluster_ratio()),
            groups: sb.groups_count(),
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: sb.inodes_per_group,
            groups_per_flex: sb.groups_per_flex(),
            descriptor_bytes: sb.desc_size,
            hash_seed: uuid(&seed),
            created: sb.mkfs_time,
            mounted: sb.mtime,
            written: sb.wtime,
            checked: sb.lastcheck,
            mount_count: sb.mnt_count,
            last_mounted: encoded(sb.last_mounted_path()),
            lifetime_kib: sb.kbytes_written,
            on_errors: match sb.errors {
                ErrorPolicy::CONTINUE => "continue",
                ErrorPolicy::PANIC => "panic",
                _ => "read-only",
            },
            error_count: sb.error_count,
            last_error: (sb.last_error.time > 0).then(|| LastError::of(&sb.last_error)),
            journal,
            layout: LayoutInfo::of(image),
            disk: None,
        }
    }

    fn print(&self, sb: &Superblock, out: &mut Out) -> Result<(), Failure> {
        let bytes = |blocks: u64| amount::shown(blocks.saturating_mul(self.block_bytes as u64));
        let mut rows: Vec<(&str, String)> = Vec::new();
        let label = Shown(sb.label()).to_string();
        rows.push(("Label", if label.is_empty() { "none".into() } else { label }));
        rows.push(("UUID", self.uuid.clone()));
        rows.push(("State", self.state.into()));
        rows.push(("Features", self.features.join(" ")));
        rows.push((
            "Size",
            format!(
                "{} ({} blocks of {} bytes)",
                bytes(self.blocks),
                self.blocks,
                self.block_bytes
            ),
        ));
        if self.cluster_bytes != self.block_bytes as u64 {
            rows.push(("Clusters", format!("of {} bytes", self.cluster_bytes)));
        }
        let percent = self.free_blocks as f64 * 100.0 / self.blocks.max(1) as f64;
        let free = bytes(self.free_blocks);
        rows.push(("Free", format!("{free} ({} blocks, {percent:.1}%)", self.free_blocks)));
        let reserved = bytes(self.reserved_blocks);
        rows.push(("Reserved", format!("{reserved} ({} blocks)", self.reserved_blocks)));
        rows.push((
            "Inodes",
            format!("{} of {} bytes, {} free", self.inodes, self.inode_bytes, self.free_inodes),
        ));
        let groups = self.groups.map_or_else(|| "?".into(), |groups| groups.to_string());
        rows.push((
            "Groups",
            format!(
                "{groups} of {} blocks and {} inodes, {} together",
                self.blocks_per_group, self.inodes_per_group, self.groups_per_flex
            ),
        ));
        rows.push(("Journal", self.journal_row(&bytes)));
        if let Some(layout) = &self.layout {
            rows.extend(layout.rows());
        }
        rows.push(("Created", moment::seconds(self.created)));
        rows.push(("Written", moment::seconds(self.written)));
        let place = sb.last_mounted_path();
        let place = match place.is_empty() {
            true => String::new(),
            false => format!(" on {}", Shown(place)),
        };
        rows.push(("Mounted", format!("{}{place}", moment::seconds(self.mounted))));
        rows.push((
            "Checked",
            format!("{}, {} mounts since", moment::seconds(self.checked), self.mount_count),
        ));
        if self.error_count > 0 {
            rows.push(("Errors", format!("{} recorded by mounts", self.error_count)));
        }
        if let Some(last) = &self.last_error {
            let when = moment::seconds(last.time);
            let place = format!("ino {}, block {}", last.ino, last.block);
            rows.push((
                "Last error",
                format!("{when} in {}:{} ({place})", last.function, last.line),
            ));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            out.text(format_args!("{name:<width$}  {value}\n"))?;
        }
        Ok(())
    }

    fn journal_row(&self, bytes: &dyn Fn(u64) -> String) -> String {
        let Some(journal) = &self.journal else { return "unknown".into() };
        let state = journal.state.unwrap_or("");
        let mut text = match (journal.place, journal.blocks) {
            ("none", _) => return "none".into(),
            ("internal", Some(blocks)) => {
                format!("{} ({blocks} blocks), {state}", bytes(u64::from(blocks)))
            }
            (place, _) => format!("{place}, {state}"),
        };
        if let Some(sequence) = journal.sequence {
            text += &format!(", next transaction {sequence}");
        }
        if let Some(state) = journal.fast_commits.filter(|state| *state != "off") {
            text += &format!(", fast commits {state}");
        }
        if let Some(blocks) = journal.fast_commit_blocks {
            text += &format!(" in {blocks} blocks");
        }
        if let Some(state) = journal.byte_log {
            text += &format!(", byte log {state}");
        }
        if let Some(uuid) = &journal.uuid {
            text += &format!(", UUID {uuid}");
        }
        if let Some(error) = &journal.error {
            text += &format!(", {error}");
        }
        text
    }
}

impl LastError {
    fn of(record: &ErrorRecord) -> LastError {
        let name = record.func.split(|&byte| byte == 0).next().unwrap_or_default();
        LastError {
            time: record.time,
            ino: record.ino,
            block: record.block,
            function: Shown(name).to_string(),
            line: record.line,
        }
    }
}

/// The state in one or two words.
pub(crate) fn state(sb: &Superblock) -> &'static str {
    if sb.has_errors() {
        "has errors"
    } else if sb.needs_recovery() {
        "needs recovery"
    } else if sb.is_clean() {
        "clean"
    } else {
        "not unmounted"
    }
}

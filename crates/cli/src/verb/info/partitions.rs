//! The partitions of a disk, and what is in them.

use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded, uuid};
use crate::{amount, disk, signature};
use extant::disk::{Copy, Disk, Partition, TableKind};
use serde::Serialize;
use std::path::Path;

/// The partition table of a disk.
#[derive(Serialize)]
pub(super) struct Partitions {
    table: &'static str,
    id: String,
    sector_bytes: u64,
    from_backup: bool,
    partitions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    number: u32,
    start: u64,
    bytes: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    type_name: Option<&'static str>,
    partuuid: String,
    partlabel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
}

impl Partitions {
    /// The partitions of the disk, unless the name of `image` says where on it the volume is.
    pub(super) fn of(image: &Image) -> Option<Partitions> {
        if image.names_a_place() {
            return None;
        }
        let device = disk::device(&image.path)?;
        let disk = Disk::read(&device).ok()??;
        let rows = disk.partitions.iter().map(|part| Row::of(part, &image.path, &device));
        Some(Partitions {
            table: match disk.kind {
                TableKind::Gpt => "gpt",
                TableKind::Mbr => "mbr",
            },
            id: disk.id.clone(),
            sector_bytes: disk.sector_bytes,
            from_backup: disk.copy == Copy::Backup,
            partitions: rows.collect(),
        })
    }

    pub(super) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let count = match self.partitions.len() {
            1 => "1 partition".into(),
            count => format!("{count} partitions"),
        };
        let (table, id) = (self.table.to_uppercase(), &self.id);
        let backup = match self.from_backup {
            true => ", read from its backup: the table at the start is damaged",
            false => "",
        };
        out.text(format_args!("{table} {id}, {count}{backup}\n"))?;
        let lines: Vec<[String; 5]> = self.partitions.iter().map(Row::columns).collect();
        let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
        let (a, b, c, d) = (width(0), width(1), width(2), width(3));
        for [number, start, size, kind, content] in &lines {
            let line = format!("{number:>a$}  {start:>b$}  {size:>c$}  {kind:<d$}  {content}");
            out.text(format_args!("{}\n", line.trim_end()))?;
        }
        Ok(())
    }
}

impl Row {
    fn of(part: &Partition, path: &Path, device: &extant::FileDevice) -> Row {
        let superblock = part.superblock(device);
        Row {
            number: part.number,
            start: part.start,
            bytes: part.len,
            kind: part.kind.to_string(),
            type_name: part.kind.name(),
            partuuid: part.uuid.clone(),
            partlabel: part.label.clone(),
            content: signature::known(path, part.start).ok().flatten().map(|format| format.name),
            label: superblock.as_ref().map(|sb| encoded(sb.label())),
            uuid: superblock.map(|sb| uuid(&sb.uuid)),
        }
    }

    /// Number, first byte, size, type, and what is in it.
    fn columns(&self) -> [String; 5] {
        let kind = self.type_name.map_or_else(|| self.kind.clone(), String::from);
        let kind = match self.partlabel.is_empty() {
            true => kind,
            false => format!("{kind} '{}'", Shown(self.partlabel.as_bytes())),
        };
        let mut content = self.content.unwrap_or_default().to_owned();
        if let Some(label) = self.label.as_ref().filter(|label| !label.is_empty()) {
            content += &format!(" '{}'", Shown(label.as_bytes()));
        }
        if let Some(uuid) = &self.uuid {
            content += &format!(", UUID {uuid}");
        }
        let start = format!("at {}", amount::shown(self.start));
        [self.number.to_string(), start, amount::shown(self.bytes), kind, content]
    }
}

//! The report as one JSON object with the fields of `docs/JSON.md`.

use super::facts::Facts;
use crate::journal::JournalInfo;
use crate::shown::{encoded, uuid};
use extant::survey::{Bucket, Cell, DirRow, FileRow, Parts, Survey};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Serialize)]
pub(super) struct Answer<'a> {
    image: &'a str,
    label: String,
    uuid: String,
    state: &'static str,
    replayed: bool,
    features: Vec<String>,
    block_bytes: usize,
    cluster_bytes: u64,
    blocks: u64,
    inodes: u32,
    free_inodes: u32,
    reserved_blocks: u64,
    checksums: Checksums,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<Journal<'a>>,
    #[serde(flatten)]
    survey: Option<Surveyed>,
    problems: &'a [String],
    problems_count: u64,
}

#[derive(Serialize)]
struct Checksums {
    metadata: &'static str,
    data: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covered_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covered_files: Option<u64>,
}

#[derive(Serialize)]
struct Journal<'a> {
    #[serde(flatten)]
    info: &'a JournalInfo,
    #[serde(flatten)]
    log: Option<Log>,
}

#[derive(Serialize)]
struct Log {
    log_first: u32,
    log_end: u32,
    tail: u32,
    head: u32,
    used_blocks: u32,
    transactions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_commit_first: Option<u32>,
}

#[derive(Serialize)]
struct Surveyed {
    space: Space,
    groups: Groups,
    free_runs: Runs,
    files: Files,
    largest_files: Vec<FileLine>,
    most_pieces: Vec<FileLine>,
    largest_dirs: Vec<DirLine>,
    fullest_dirs: Vec<DirLine>,
    map: Vec<CellLine>,
}

#[derive(Serialize)]
struct Space {
    free: u64,
    files: u64,
    directories: u64,
    journal: u64,
    metadata: u64,
    other: u64,
    unknown: u64,
}

impl Space {
    fn of(parts: &Parts, unknown: u64) -> Space {
        let Parts { free, files, directories, journal, metadata, .. } = *parts;
        Space { free, files, directories, journal, metadata, other: parts.other(), unknown }
    }
}

#[derive(Serialize)]
struct Groups {
    count: u32,
    full: u32,
    uninit: u32,
    damaged: u32,
}

#[derive(Serialize)]
struct Runs {
    count: u64,
    blocks: u64,
    longest: u64,
    by_length: Vec<Row>,
}

/// Values from `from` to `2 * from - 1`.
#[derive(Serialize)]
struct Row {
    from: u64,
    count: u64,
    blocks: u64,
}

#[derive(Serialize)]
struct Files {
    regular: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    names: u64,
    bytes: u64,
    inline: u64,
    with_blocks: u64,
    data_blocks: u64,
    pieces: u64,
    fragmented: u64,
    by_pieces: Vec<Row>,
}

#[derive(Serialize)]
struct FileLine {
    path: String,
    ino: u32,
    size: u64,
    blocks: u64,
    pieces: u64,
}

#[derive(Serialize)]
struct DirLine {
    path: String,
    ino: u32,
    names: u64,
    below: u64,
    blocks: u64,
}

#[derive(Serialize)]
struct CellLine {
    first_block: u64,
    blocks: u64,
    groups: [u32; 2],
    #[serde(flatten)]
    space: Space,
    free_runs: u64,
    longest_free: u64,
}

/// The object.
pub(super) fn answer(facts: &Facts) -> Answer<'_> {
    let sb = &facts.sb;
    let survey = facts.survey.as_ref();
    Answer {
        image: &facts.encoded,
        label: encoded(sb.label()),
        uuid: uuid(&sb.uuid),
        state: facts.state,
        replayed: facts.replayed,
        features: sb.features.to_string().split_whitespace().map(String::from).collect(),
        block_bytes: sb.block_size.bytes(),
        cluster_bytes: sb.block_size.bytes() as u64 * u64::from(sb.cluster_ratio()),
        blocks: sb.blocks_count,
        inodes: sb.inodes_count,
        free_inodes: sb.free_inodes,
        reserved_blocks: sb.reserved_blocks,
        checksums: Checksums {
            metadata: facts.metadata_checksums().name(),
            data: facts.has_data_csum(),
            data_blocks: survey.map(|survey| survey.files.data_blocks),
            covered_blocks: survey.map(|survey| survey.files.covered.blocks),
            covered_files: survey.map(|survey| survey.files.covered.count),
        },
        journal: facts.journal.as_ref().map(|journal| Journal {
            info: &journal.info,
            log: journal.log.as_ref().map(|(superblock, usage)| Log {
                log_first: superblock.first,
                log_end: superblock.log_end().unwrap_or(superblock.maxlen),
                tail: usage.tail,
                head: usage.head,
                used_blocks: usage.blocks,
                transactions: usage.transactions,
                fast_commit_first: Some(superblock.fast_commit_area())
                    .filter(|area| !area.is_empty())
                    .map(|area| area.start),
            }),
        }),
        survey: survey.map(surveyed),
        problems: &facts.problems,
        problems_count: facts.problems_count,
    }
}

fn surveyed(survey: &Survey) -> Surveyed {
    let (groups, free, files) = (&survey.groups, &survey.free, &survey.files);
    Surveyed {
        space: Space::of(&survey.parts, survey.unknown_blocks),
        groups: Groups {
            count: groups.count,
            full: groups.full,
            uninit: groups.uninit,
            damaged: groups.damaged,
        },
        free_runs: Runs {
            count: free.count,
            blocks: free.blocks,
            longest: free.longest,
            by_length: rows(&free.by_length),
        },
        files: Files {
            regular: files.regular,
            directories: files.directories,
            symlinks: files.symlinks,
            special: files.special,
            names: files.names,
            bytes: files.bytes,
            inline: files.inline,
            with_blocks: files.with_blocks,
            data_blocks: files.data_blocks,
            pieces: files.pieces,
            fragmented: files.fragmented,
            by_pieces: rows(&files.by_pieces),
        },
        largest_files: survey.largest_files.iter().map(file).collect(),
        most_pieces: survey.most_pieces.iter().map(file).collect(),
        largest_dirs: survey.largest_dirs.iter().map(dir).collect(),
        fullest_dirs: survey.fullest_dirs.iter().map(dir).collect(),
        map: survey.cells.iter().map(cell).collect(),
    }
}

fn rows(buckets: &[Bucket]) -> Vec<Row> {
    let row = |(n, bucket): (usize, &Bucket)| {
        (bucket.count > 0).then_some(Row {
            from: 1 << n,
            count: bucket.count,
            blocks: bucket.blocks,
        })
    };
    buckets.iter().enumerate().filter_map(row).collect()
}

fn path(path: &Path) -> String {
    encoded(path.as_os_str().as_bytes())
}

fn file(row: &FileRow) -> FileLine {
    let FileRow { ino, size, blocks, pieces, .. } = *row;
    FileLine { path: path(&row.path), ino: ino.get(), size, blocks, pieces }
}

fn dir(row: &DirRow) -> DirLine {
    let DirRow { ino, names, below, blocks, .. } = *row;
    DirLine { path: path(&row.path), ino: ino.get(), names, below, blocks }
}

fn cell(cell: &Cell) -> CellLine {
    CellLine {
        first_block: cell.first_block,
        blocks: cell.parts.blocks,
        groups: [cell.groups.start, cell.groups.end],
        space: Space::of(&cell.parts, cell.unknown),
        free_runs: cell.free_runs,
        longest_free: cell.longest_free,
    }
}

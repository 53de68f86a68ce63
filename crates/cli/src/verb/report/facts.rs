//! Collects the facts that a report shows.

use crate::failure::{Failure, explained};
use crate::image::Image;
use crate::journal::JournalInfo;
use crate::shown::Shown;
use crate::verb::info::{bare_superblock, state};
use extant::Filesystem;
use extant::Progress;
use extant::journal::LogUsage;
use extant::superblock::Superblock;
use extant::survey::{Options, Parts, Survey};
use extant_ondisk::features::RoCompat;
use extant_ondisk::jbd2::JournalSuperblock;
use std::os::unix::ffi::OsStrExt;

/// All facts.
pub(super) struct Facts {
    /// The name of the image as the user wrote it, escaped.
    pub(super) name: String,
    /// The same for JSON.
    pub(super) encoded: String,
    /// The superblock after recovery in memory, if the volume needed it.
    pub(super) sb: Superblock,
    /// `clean` and so on, as on the disk.
    pub(super) state: &'static str,
    /// `None` when the volume could not be opened.
    pub(super) journal: Option<Journal>,
    /// Whether the journal was replayed in memory before the survey.
    pub(super) replayed: bool,
    /// `None` when the volume could not be opened.
    pub(super) survey: Option<Survey>,
    /// What could not be read: the first problems.
    pub(super) problems: Vec<String>,
    pub(super) problems_count: u64,
}

/// The journal as it is on the disk.
pub(super) struct Journal {
    pub(super) info: JournalInfo,
    /// For a journal inside the volume, as far as it can be read.
    pub(super) log: Option<(JournalSuperblock, LogUsage)>,
}

/// Which metadata has checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataChecksums {
    None,
    /// `gdt_csum`: group descriptors, CRC16.
    Descriptors,
    /// `metadata_csum`: all metadata, CRC32C.
    All,
}

impl MetadataChecksums {
    pub(super) fn name(self) -> &'static str {
        match self {
            MetadataChecksums::None => "none",
            MetadataChecksums::Descriptors => "descriptors",
            MetadataChecksums::All => "all",
        }
    }
}

impl Facts {
    /// Reads the volume. Damage becomes part of the facts.
    ///
    /// Errors: it is not a volume, or cannot be opened for a reason outside it.
    pub(super) fn of(
        image: &Image,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Facts, Failure> {
        let mut without_recovery = image.options();
        without_recovery.recover(false);
        let mut fs = match without_recovery.open(&image.path) {
            Ok(fs) => fs,
            Err(error) => {
                let Some(sb) = bare_superblock(image) else {
                    return Err(Failure::of_image(&image.name, &error));
                };
                let mut facts = Facts::new(image, sb);
                facts.problem(explained(&error));
                return Ok(facts);
            }
        };
        let mut facts = Facts::new(image, fs.superblock().clone());
        facts.journal = Some(facts.journal_of(&fs));
        if facts.sb.needs_recovery() {
            drop(fs);
            fs = match image.options().open(&image.path) {
                Ok(fs) => {
                    facts.replayed = !fs.superblock().needs_recovery();
                    fs
                }
                Err(error) => {
                    facts.problem(format!(
                        "the journal cannot be replayed, the volume is shown as it is on disk: {}",
                        explained(&error)
                    ));
                    image.open_with(&without_recovery)?
                }
            };
            facts.sb = fs.superblock().clone();
        }
        match fs.survey(options, progress) {
            Ok(survey) => facts.take_in(survey),
            Err(error) => facts.problem(explained(&error)),
        }
        Ok(facts)
    }

    fn new(image: &Image, sb: Superblock) -> Facts {
        Facts {
            name: Shown::path(&image.name).to_string(),
            encoded: crate::shown::encoded(image.name.as_os_str().as_bytes()),
            state: state(&sb),
            sb,
            journal: None,
            replayed: false,
            survey: None,
            problems: Vec::new(),
            problems_count: 0,
        }
    }

    fn problem(&mut self, text: String) {
        self.problems.push(text);
        self.problems_count += 1;
    }

    fn journal_of(&mut self, fs: &Filesystem) -> Journal {
        let info = JournalInfo::of(fs);
        if let Some(error) = &info.error {
            self.problem(format!("journal: {error}"));
            return Journal { info, log: None };
        }
        let log = match (fs.journal_superblock(), fs.journal_usage()) {
            (Ok(Some(superblock)), Ok(Some(usage))) => Some((superblock, usage)),
            (Ok(_), Err(error)) => {
                self.problem(format!("journal: {}", explained(&error)));
                None
            }
            _ => None,
        };
        Journal { info, log }
    }

    fn take_in(&mut self, survey: Survey) {
        self.problems_count += survey.problems_count;
        self.problems.extend(survey.problems.iter().map(|problem| {
            let error = explained(&problem.error);
            match &problem.path {
                Some(path) => format!("{}: {error}", Shown::path(path)),
                None => error,
            }
        }));
        self.survey = Some(survey);
    }

    /// Size of this many blocks in bytes.
    pub(super) fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.sb.block_size.bytes() as u64)
    }

    pub(super) fn metadata_checksums(&self) -> MetadataChecksums {
        let features = self.sb.features.ro_compat;
        if features.contains(RoCompat::METADATA_CSUM) {
            MetadataChecksums::All
        } else if features.contains(RoCompat::GDT_CSUM) {
            MetadataChecksums::Descriptors
        } else {
            MetadataChecksums::None
        }
    }

    pub(super) fn has_data_csum(&self) -> bool {
        self.sb.features.ro_compat.contains(RoCompat::DATA_CSUM)
    }
}

/// Blocks in use by kind, in the order of the pictures: a short name (also for CSS), a label, the
/// number of blocks.
pub(super) fn kinds(parts: &Parts) -> [(&'static str, &'static str, u64); 5] {
    [
        ("files", "files", parts.files),
        ("dirs", "directories", parts.directories),
        ("journal", "journal", parts.journal),
        ("meta", "metadata", parts.metadata),
        ("other", "other", parts.other()),
    ]
}

/// Number of blocks in use.
pub(super) fn used(parts: &Parts) -> u64 {
    parts.blocks.saturating_sub(parts.free)
}

/// Pieces for each MiB of data.
pub(super) fn pieces_per_mib(pieces: u64, bytes: u64) -> f64 {
    pieces as f64 / (bytes as f64 / f64::from(1 << 20)).max(1.0 / 1024.0)
}

/// `part` as a percentage of `whole`.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// A percentage for people. A small part is not shown as 0 %, nor a large one as 100 %.
pub(super) fn percent_shown(part: u64, whole: u64) -> String {
    match percent(part, whole) {
        _ if part == 0 => "0 %".into(),
        value if value < 0.1 => "<0.1 %".into(),
        value if value > 99.9 && part < whole => ">99.9 %".into(),
        value if (10.0..99.95).contains(&value) || value >= 100.0 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

/// `1,234,567`
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2,000 files`
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// The values of bucket `n`, which covers a power of two: `1`, `2–3`, `4–7`.
pub(super) fn span(n: usize) -> String {
    match n {
        0 => "1".into(),
        n => format!("{}–{}", grouped(1 << n.min(63)), grouped(u64::MAX >> (63 - n.min(63)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2, 10].map(span), ["1", "2–3", "4–7", "1,024–2,047"]);
        let parts = [(0, 7), (1, 100_000), (1, 40), (1, 3), (99_999, 100_000), (5, 5)];
        let shown = parts.map(|(part, whole)| percent_shown(part, whole));
        assert_eq!(shown, ["0 %", "<0.1 %", "2.5 %", "33 %", ">99.9 %", "100 %"]);
        assert_eq!(span(63), format!("{}–{}", grouped(1 << 63), grouped(u64::MAX)));
    }
}

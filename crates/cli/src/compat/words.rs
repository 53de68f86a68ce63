//! Errors in the words of e2fsprogs' library, with the numbers that its programs exit with.

use crate::failure::{explained, plain};
use extant::{Error, What};
use extant_base::FeatureSet;

/// An error as com_err(3) prints it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    /// The low byte of the error's number.
    pub(super) number: u8,
}

fn words(text: impl Into<String>, number: u8) -> Words {
    Words { text: text.into(), number }
}

/// Why a volume could not be opened or used.
pub(super) fn of(error: &Error) -> Words {
    match error {
        Error::Device { source, .. } if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            words("Attempt to read block from filesystem resulted in short read", 36)
        }
        Error::Device { source, .. } => {
            let number = source.raw_os_error().and_then(|number| u8::try_from(number).ok());
            words(plain(source), number.unwrap_or(5))
        }
        Error::Corrupt { what: What::SuperblockMagic, .. } => {
            words("Bad magic number in super-block", 19)
        }
        Error::Corrupt { what: What::SuperblockChecksum, .. } => {
            words("Superblock checksum does not match superblock", 152)
        }
        Error::Corrupt {
            what:
                What::SuperblockField
                | What::SuperblockBlockSize
                | What::SuperblockClusterSize
                | What::SuperblockInodeSize
                | What::SuperblockDescSize
                | What::SuperblockGroups
                | What::SuperblockFeatures,
            ..
        } => words("The ext2 superblock is corrupt", 60),
        Error::Unsupported { feature } if feature.set == FeatureSet::RoCompat => {
            words("Filesystem has unsupported read-only feature(s)", 68)
        }
        Error::Unsupported { feature } if feature.set == FeatureSet::Incompat => {
            words("Filesystem has unsupported feature(s)", 67)
        }
        Error::Busy => words("Device or resource busy", 16),
        Error::NotFound => words("File not found by ext2_lookup", 0x54),
        Error::NoSpace => words("No space left on device", 28),
        Error::ReadOnly => words("Filesystem opened read/only", 21),
        Error::NotADirectory => words("Ext2 inode is not a directory", 48),
        Error::Exists => words("Ext2 directory already exists", 76),
        other => words(explained(other), u8::try_from(other.errno()).unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::Site;

    #[test]
    fn known_errors_have_the_original_s_words() {
        let of_what = |what: What| of(&Site::NOWHERE.corrupt(what)).text;
        assert_eq!(of_what(What::SuperblockMagic), "Bad magic number in super-block");
        assert_eq!(of_what(What::SuperblockGroups), "The ext2 superblock is corrupt");
        assert_eq!(of(&Error::Busy).text, "Device or resource busy");
    }
}

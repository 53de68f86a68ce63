//! Corrects the checksums of a changed log, so that its content is accepted.
//!
//! ```text
//!   descriptor │ copy │ copy │ … │ revoke │ commit │ …   tags have checksums of their copies
//!   HEAD INODE … TAIL │ …                                a TAIL: of the records since the last one
//!   "FCBL" payload │ "FCBL" …                            the byte log: of header and payload
//! ```
//! Sources: ext4 documentation, "Journal (jbd2)"; `extant_ondisk::{fast_commit, byte_log}`. Only
//! checksums of version 3 are set: the volumes have those, or none.

use crate::image::volumes::Volume;
use extant_base::Site;
use extant_compat_tests::volume::{Kind, Place};
use extant_crc32c::crc32c;
use extant_ondisk::byte_log::{self, HEADER_LEN};
use extant_ondisk::fast_commit::{FcSum, Record, Records};

const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn set_be32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Computes the checksums of the journal's superblock and of all blocks of the log again, if any of
/// them changed.
pub fn set_all(volume: &Volume, bytes: &mut [u8]) {
    let whole = &volume.rich.bytes;
    let of = |kind| volume.rich.places.iter().filter(move |place: &&Place| place.kind == kind);
    let changed = |place: &Place| {
        let range = place.at..place.at + place.len;
        bytes[range.clone()] != whole[range]
    };
    let Some(superblock) = of(Kind::Journal).next().map(|place| place.at) else { return };
    let log: Vec<&Place> = of(Kind::Log).collect();
    if !changed(&Place { kind: Kind::Journal, at: superblock, len: 1024 })
        && !log.iter().any(|place| changed(place))
    {
        return;
    }
    // s_feature_incompat: CSUM_V3.
    if be32(whole, superblock + 0x28) & 0x10 != 0 {
        set_be32(bytes, superblock + 0xFC, 0);
        let sum = crc32c(!0, &bytes[superblock..superblock + 1024]);
        set_be32(bytes, superblock + 0xFC, sum);
        let seed = crc32c(!0, &bytes[superblock + 0x30..superblock + 0x40]);
        let mut at = 0;
        while at < log.len() {
            at += 1 + block(bytes, &log[at..], seed);
        }
    }
    fast_commits(bytes, &log);
    records(bytes, &log);
}

/// Sets the checksums of the first block of `log`, and of the copies that it names. Returns the
/// number of copies.
fn block(bytes: &mut [u8], log: &[&Place], seed: u32) -> usize {
    let (at, len) = (log[0].at, log[0].len);
    if bytes[at..at + 4] != MAGIC {
        return 0;
    }
    let mut copies = 0;
    match be32(bytes, at + 4) {
        1 => {
            let tid = crc32c(seed, &bytes[at + 8..at + 12]);
            let mut tag = at + 12;
            while tag + 16 <= at + len - 4 {
                let flags = be32(bytes, tag + 4);
                copies += 1;
                if let Some(copy) = log.get(copies) {
                    let sum = crc32c(tid, &bytes[copy.at..copy.at + copy.len]);
                    set_be32(bytes, tag + 12, sum);
                }
                // SAME_UUID, LAST.
                tag += if flags & 2 == 0 { 32 } else { 16 };
                if flags & 8 != 0 {
                    break;
                }
            }
            sum_at(bytes, at, len, at + len - 4, seed);
        }
        5 => sum_at(bytes, at, len, at + len - 4, seed),
        2 => sum_at(bytes, at, len, at + 0x10, seed),
        _ => {}
    }
    copies
}

fn sum_at(bytes: &mut [u8], at: usize, len: usize, field: usize, seed: u32) {
    set_be32(bytes, field, 0);
    let sum = crc32c(seed, &bytes[at..at + len]);
    set_be32(bytes, field, sum);
}

/// Sets the checksum of each TAIL over the fast-commit records before it.
fn fast_commits(bytes: &mut [u8], log: &[&Place]) {
    let mut sum = FcSum::default();
    for place in log {
        let block = bytes[place.at..place.at + place.len].to_vec();
        for located in Records::new(&block, 1024, Site::NOWHERE).map_while(Result::ok) {
            match located.record {
                Record::Tail { .. } => {
                    let tail = sum.at_tail(located.bytes);
                    let at = place.at + located.offset + 8;
                    bytes[at..at + 4].copy_from_slice(&tail.to_le_bytes());
                    sum = FcSum::default();
                }
                Record::Head { .. } if located.offset == 0 => {
                    sum = FcSum::default().with(located.bytes);
                }
                _ => sum = sum.with(located.bytes),
            }
        }
    }
}

/// Sets the checksums of the byte log's records: payloads and headers. A payload that continues in
/// the next block is followed if that is the next one on the disk, too.
fn records(bytes: &mut [u8], log: &[&Place]) {
    for place in log {
        for at in (place.at..place.at + place.len).step_by(HEADER_LEN) {
            if bytes[at..at + 4] != byte_log::MAGIC.to_le_bytes() {
                continue;
            }
            let len =
                u32::from_le_bytes(bytes[at + 0x10..at + 0x14].try_into().expect("four bytes"));
            let payload = at + HEADER_LEN;
            if let Some(payload) = bytes.get(payload..payload.saturating_add(len as usize)) {
                let sum = byte_log::sum(!0, payload);
                bytes[at + 0x14..at + 0x18].copy_from_slice(&sum.to_le_bytes());
            }
            bytes[at + 0x1C..at + 0x20].fill(0);
            let sum = byte_log::sum(!0, &bytes[at..at + HEADER_LEN]);
            bytes[at + 0x1C..at + 0x20].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::image::volumes;
    use extant_compat_tests::volume::Kind;

    #[test]
    fn the_sums_of_a_log_that_is_whole_stay_as_they_are() {
        extant_testkit::require!(E2fsprogs);
        for volume in volumes::all().iter().filter(|volume| volume.dirty) {
            let whole = &volume.rich.bytes;
            let journal = volume.rich.places.iter().find(|place| place.kind == Kind::Journal);
            // Its own checksum, if it has one: changing it causes all of them to be set.
            let field = journal.expect("it has one").at + 0xFC;
            let mut bytes = whole.clone();
            bytes[field] ^= 1;
            super::set_all(volume, &mut bytes);
            bytes[field] = whole[field];
            let other = bytes.iter().zip(whole).position(|(a, b)| a != b);
            assert_eq!(other, None, "{}", volume.rich.name);
        }
    }
}

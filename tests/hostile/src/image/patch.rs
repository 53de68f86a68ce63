//! An input as changes of a volume.

use crate::image::log_sums;
use crate::image::volumes::{self, Volume};
use extant::MemoryDevice;
use extant_base::ByteOffset;
use extant_blockdev::BlockDevice;
use extant_compat_tests::volume::{Kind, Place};
use extant_crc32c::crc32c;
use std::cell::RefCell;

/// Bytes of an edit.
pub const EDIT: usize = 14;
/// The number of edits of an input that are applied; the others are ignored.
pub const EDITS_MAX: usize = 16;
/// The unit of comparing and copying.
const PAGE: usize = 4096;

/// A changed volume.
#[derive(Debug)]
pub struct Patched {
    /// The volume as it was.
    pub volume: &'static Volume,
    /// Its present bytes.
    pub device: MemoryDevice,
    /// The body's choice, 0..128.
    pub choice: u8,
}

/// The kinds of structures of a volume, in order.
fn kinds_of(volume: &Volume) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = volume.rich.places.iter().map(|place| place.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The number of kinds of structures in the volume that a byte selects.
pub fn kinds(volume: u8) -> usize {
    kinds_of(volumes::chosen(volume)).len()
}

/// The volume that an input describes; `None` for an input that is too short.
pub fn patched(data: &[u8]) -> Option<Patched> {
    thread_local! {
        /// Each unchanged volume, between inputs.
        static WORK: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    }
    let (&[volume, choice], edits) = data.split_first_chunk()?;
    let nr = usize::from(volume) % volumes::all().len();
    let volume = &volumes::all()[nr];
    let device = WORK.with_borrow_mut(|work| {
        work.resize(volumes::all().len(), Vec::new());
        let (whole, bytes) = (&volume.rich.bytes, &mut work[nr]);
        if bytes.is_empty() {
            bytes.clone_from(whole);
        }
        let kinds = kinds_of(volume);
        for edit in edits.as_chunks::<EDIT>().0.iter().take(EDITS_MAX) {
            make(volume, &kinds, bytes, edit);
        }
        if choice & 1 == 0 {
            if let Some(sums) = &volume.sums {
                sums.set_all(whole, bytes);
            }
            log_sums::set_all(volume, bytes);
            set_members(volume, bytes);
        }
        let device = volume.base.clone();
        for (n, page) in bytes.chunks_mut(PAGE).enumerate() {
            let whole = &whole[n * PAGE..][..page.len()];
            if page != whole {
                device.write_at(ByteOffset((n * PAGE) as u64), page).expect("memory");
                page.copy_from_slice(whole);
            }
        }
        device
    });
    Some(Patched { volume, device, choice: choice >> 1 })
}

fn make(volume: &Volume, kinds: &[Kind], bytes: &mut [u8], edit: &[u8; EDIT]) {
    let [kind, which, at0, at1, how, from, value @ ..] = *edit;
    let kind = kinds[usize::from(kind) % kinds.len()];
    let of_kind: Vec<&Place> = volume.rich.places.iter().filter(|p| p.kind == kind).collect();
    let place = of_kind[usize::from(which) % of_kind.len()];
    let all = &volume.rich.places;
    let other = match how & 0x80 {
        0 => of_kind[usize::from(from) % of_kind.len()],
        _ => &all[(usize::from(from) << 8 | usize::from(value[0])) % all.len()],
    };
    let len = [1, 2, 4, 8][usize::from(how & 3)];
    // Fields are aligned to their length.
    let at = place.at + usize::from(u16::from_le_bytes([at0, at1])) % place.len / len * len;
    let old = word(bytes, at, len);
    let new = match how >> 2 & 7 {
        0 => u64::from_le_bytes(value),
        1 => old.wrapping_add(i64::from(value[0] as i8) as u64),
        2 => old ^ 1 << (value[0] % 64),
        // The place of another structure, from the volume's start in blocks.
        3 => (other.at / volume.rich.block) as u64,
        // The journal's numbers are big-endian.
        4 => u64::from_be_bytes(value) >> (64 - 8 * len),
        5 => {
            let there = other.at + (at - place.at) % other.len / len * len;
            word(bytes, there, len)
        }
        6 => {
            let len = place.len.min(other.len);
            return bytes.copy_within(other.at..other.at + len, place.at);
        }
        _ => return bytes[at..place.at + place.len].fill(value[0]),
    };
    bytes[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
}

/// Sets the checksums of changed member records.
fn set_members(volume: &Volume, bytes: &mut [u8]) {
    let places = volume.rich.places.iter().filter(|place| place.kind == Kind::Member);
    for Place { at, len, .. } in places {
        let (record, whole) = (&mut bytes[*at..at + len], &volume.rich.bytes[*at..at + len]);
        if record != whole {
            let (fields, sum) = record.split_at_mut(len - 4);
            sum.copy_from_slice(&crc32c(!0, fields).to_le_bytes());
        }
    }
}

fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, bytes};

    #[test]
    fn any_input_changes_structures_and_nothing_else() {
        extant_testkit::require!(E2fsprogs);
        let mut rng = Rng::new(1);
        for seed in 0..300 {
            let data = bytes(seed, 2 + rng.below(5 * EDIT));
            let patched = patched(&data).expect("it is long enough");
            let whole = &patched.volume.rich.bytes;
            let mut now = vec![0; whole.len()];
            patched.device.read_at(ByteOffset(0), &mut now).expect("memory");
            for (at, _) in now.iter().zip(whole).enumerate().filter(|(_, (a, b))| a != b) {
                let mut places = patched.volume.rich.places.iter();
                // The checksums of an inode are in its slot after the first 128 bytes, those of
                // bitmaps in descriptors.
                let near = |place: &Place| (place.at..place.at + place.len.max(1024)).contains(&at);
                assert!(places.any(near), "byte {at} of {}", patched.volume.rich.name);
            }
            let again = super::patched(&data[..2]).expect("the same volume");
            again.device.read_at(ByteOffset(0), &mut now).expect("memory");
            assert!(now == *whole, "an input left something to the next");
        }
        assert!(super::patched(&[0]).is_none());
    }
}

//! The vectors of `data/crc32c_vectors.json`; the file states its own rules.

use extant_crc32c as crc;
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../data/crc32c_vectors.json")).expect("the vectors parse")
}

fn hex(case: &Value, key: &str) -> u64 {
    u64::from_str_radix(case[key].as_str().expect(key), 16).expect(key)
}

fn hex32(case: &Value, key: &str) -> u32 {
    hex(case, key).try_into().expect(key)
}

fn number(case: &Value, key: &str) -> usize {
    case[key].as_u64().expect(key) as usize
}

/// The file's `buffer_rule`: splitmix64, as little-endian words, cut.
fn buffer(mut state: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < bytes {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        out.extend((z ^ (z >> 31)).to_le_bytes());
    }
    out.truncate(bytes);
    out
}

fn flip_bits(bytes: &mut [u8], off: usize, len: usize) {
    for bit in off..off + len {
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn cases(kind: &str) -> Vec<Value> {
    let cases = vectors()[kind].as_array().expect(kind).clone();
    assert!(cases.len() >= 20, "{kind}: {}", cases.len());
    cases
}

#[test]
fn flips_match_their_vectors() {
    for case in cases("flip") {
        let mut bytes = buffer(hex(&case, "seed"), number(&case, "bytes"));
        let init = hex32(&case, "init");
        let (off, len) = (number(&case, "bit_off"), number(&case, "bit_len"));
        let (total, before, after) =
            (bytes.len() as u64 * 8, hex32(&case, "before"), hex32(&case, "after"));
        assert_eq!(crc::crc32c(init, &bytes), before, "{case}");
        assert_eq!(crc::portable::crc32c(init, &bytes), before, "{case}");
        assert_eq!(crc::flip_range(before, total, off as u64, len as u64), after, "{case}");
        let delta = crc::portable::flip_delta(total, off as u64, len as u64);
        assert_eq!(before ^ delta, after, "{case}");
        flip_bits(&mut bytes, off, len);
        assert_eq!(crc::crc32c(init, &bytes), after, "{case}");
    }
}

#[test]
fn splices_match_their_vectors() {
    for case in cases("splice") {
        let bytes = buffer(hex(&case, "seed"), number(&case, "bytes"));
        let (off, len) = (number(&case, "off"), number(&case, "len"));
        let (before, after) = (hex32(&case, "before"), hex32(&case, "after"));
        let old = &bytes[off..off + len];
        let new = buffer(hex(&case, "new_seed"), len);
        assert_eq!(crc::crc32c(hex32(&case, "init"), &bytes), before, "{case}");
        assert_eq!(crc::splice(before, bytes.len(), off, old, &new), after, "{case}");
        let trailing = (bytes.len() - off - len) as u64;
        let delta = crc::portable::splice_delta(trailing, old, &new);
        assert_eq!(before ^ delta, after, "{case}");
        let crcs = (crc::crc32c(9, old), crc::crc32c(9, &new));
        assert_eq!(crc::splice_crcs(before, trailing, crcs.0, crcs.1), after, "{case}");
    }
}

#[test]
fn combinations_match_their_vectors() {
    for case in cases("combine") {
        let (crc1, crc2) = (hex32(&case, "crc1"), hex32(&case, "crc2"));
        let (len2, out) = (hex(&case, "len2"), hex32(&case, "out"));
        assert_eq!(crc::combine(crc1, crc2, len2), out, "{case}");
        assert_eq!(crc::portable::combine(crc1, crc2, len2), out, "{case}");
    }
}

#[test]
fn runs_of_ones_match_their_vectors() {
    for case in cases("ones_run") {
        assert_eq!(crc::ones(hex(&case, "n")), hex32(&case, "crc"), "{case}");
        assert_eq!(crc::portable::ones(hex(&case, "n")), hex32(&case, "crc"), "{case}");
    }
}

#[test]
fn the_example_of_the_reference_matches() {
    let mut bytes = vec![0; 4096];
    let old = crc::crc32c(!0, &bytes);
    assert_eq!(old, 0x6706_BE76);
    for (offset, count, want) in [
        (0, 1, 0xA5A3_0828),
        (100, 100, 0xBB8A_7C35),
        (32767, 1, 0xE5F0_850E),
        (0, 32768, 0xDA3E_01EC),
        (5, 0, 0x6706_BE76),
    ] {
        assert_eq!(crc::flip_range(old, 32768, offset, count), want, "{offset}+{count}");
    }
    let new: Vec<u8> = (1..=12).collect();
    assert_eq!(crc::splice(old, 4096, 12, &bytes[12..24], &new), 0x2147_043D);
    bytes[12..24].copy_from_slice(&new);
    assert_eq!(crc::crc32c(!0, &bytes), 0x2147_043D);
}

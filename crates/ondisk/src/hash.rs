//! The hash of a name: the sort key of an htree.
//!
//! ```text
//!   name ──► words of 4 bytes, padded with its length ──► mix by version ──► hash, minor
//!              32 bytes a round (half MD4), 16 (TEA)                         │
//!                                             bit 0 cleared ◄────────────────┘
//!                                             FFFFFFFE becomes FFFFFFFC (FFFFFFFE ends readdir)
//! ```
//!
//! The version on disk is 0, 1, 2 or 6. A flag of the superblock selects whether bytes from 80 up
//! are sign-extended. Source: ext4 documentation, "Hash Tree Directories"; RFC 1320 (MD4);
//! SipHash-2-4.

use extant_base::narrow::{high_u32, len_u8, len_u32, low_u32};

/// How names of a directory are hashed, as the root of its htree stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// 0: the oldest.
    Legacy,
    /// 1: half MD4, the default of mke2fs.
    HalfMd4,
    /// 2: TEA.
    Tea,
    /// 6: SipHash-2-4, keyed by the directory's encryption key.
    SipHash,
}

impl HashVersion {
    /// The version stored as `code`, or `None` if it is unknown. Some writers use 3 to 5, but only
    /// in memory.
    pub const fn from_code(code: u8) -> Option<HashVersion> {
        match code {
            0 => Some(HashVersion::Legacy),
            1 => Some(HashVersion::HalfMd4),
            2 => Some(HashVersion::Tea),
            6 => Some(HashVersion::SipHash),
            _ => None,
        }
    }

    /// The stored number.
    pub const fn code(self) -> u8 {
        match self {
            HashVersion::Legacy => 0,
            HashVersion::HalfMd4 => 1,
            HashVersion::Tea => 2,
            HashVersion::SipHash => 6,
        }
    }

    /// Its name in e2fsprogs.
    pub const fn name(self) -> &'static str {
        match self {
            HashVersion::Legacy => "legacy",
            HashVersion::HalfMd4 => "half_md4",
            HashVersion::Tea => "tea",
            HashVersion::SipHash => "siphash",
        }
    }
}

/// A name's place in the order of an htree. Bit 0 of `hash` is always clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// The value that is compared with the keys of the index.
    pub hash: u32,
    /// Orders names of equal `hash` for readdir.
    pub minor: u32,
}

/// The parameters of the hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHasher {
    version: HashVersion,
    unsigned: bool,
    seed: [u32; 4],
}

const MD4_START: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

impl NameHasher {
    /// A hasher of `version`. `unsigned` is the superblock's flag 2 (else signed), `seed` its
    /// `s_hash_seed`; all zero means MD4's own start. For [`HashVersion::SipHash`] the four words
    /// are the 16-byte key in little-endian order.
    pub fn new(version: HashVersion, unsigned: bool, seed: [u32; 4]) -> NameHasher {
        let seed = if seed == [0; 4] && version != HashVersion::SipHash { MD4_START } else { seed };
        NameHasher { version, unsigned, seed }
    }

    /// The version names are hashed with.
    pub fn version(&self) -> HashVersion {
        self.version
    }

    /// The hash of `name`, which is the folded name in a casefolded directory.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let (hash, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let mut state = self.seed;
                for_chunks(name, 32, |rest| half_md4(&mut state, &self.words::<8>(rest)));
                (state[1], state[2])
            }
            HashVersion::Tea => {
                let mut state = self.seed;
                for_chunks(name, 16, |rest| tea(&mut state, &self.words::<4>(rest)));
                (state[0], state[1])
            }
            HashVersion::SipHash => {
                let key = |i: usize| u64::from(self.seed[i]) | u64::from(self.seed[i + 1]) << 32;
                let sum = siphash24(key(0), key(2), name);
                (high_u32(sum), low_u32(sum))
            }
        };
        NameHash { hash: finish(hash), minor }
    }

    fn extend(&self, byte: u8) -> u32 {
        if self.unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
        for &byte in name {
            let mixed = last ^ self.extend(byte).wrapping_mul(7_152_373);
            let mut hash = before.wrapping_add(mixed);
            if hash & 0x8000_0000 != 0 {
                hash = hash.wrapping_sub(0x7FFF_FFFF);
            }
            (last, before) = (hash, last);
        }
        last << 1
    }

    /// Packs up to `4 * N` bytes of `rest` into words. Missing bytes are filled with the length.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let len = len_u32(rest.len());
        let pad = len | len << 8;
        let pad = pad | pad << 16;
        let mut words = [pad; N];
        let mut rest = rest;
        for word in &mut words {
            let (bytes, after) = rest.split_at(rest.len().min(4));
            rest = after;
            *word = match bytes.first_chunk::<4>().map(|four| u32::from_be_bytes(*four)) {
                // Where no byte is sign-extended, the word is the four bytes.
                Some(four) if self.unsigned || four & 0x8080_8080 == 0 => four,
                // Each word starts as the padding and is shifted out byte by byte.
                _ => bytes
                    .iter()
                    .fold(pad, |word, &byte| (word << 8).wrapping_add(self.extend(byte))),
            };
        }
        words
    }
}

fn for_chunks(name: &[u8], step: usize, mut each: impl FnMut(&[u8])) {
    let mut rest = name;
    while !rest.is_empty() {
        each(rest);
        rest = &rest[step.min(rest.len())..];
    }
}

fn finish(hash: u32) -> u32 {
    match hash & !1 {
        0xFFFF_FFFE => 0xFFFF_FFFC,
        hash => hash,
    }
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    let mut now = *state;
    let select = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    md4_round(&mut now, words, select, 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]);
    md4_round(&mut now, words, majority, 0x5A82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]);
    md4_round(&mut now, words, parity, 0x6ED9_EBA1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]);
    for (word, add) in state.iter_mut().zip(now) {
        *word = word.wrapping_add(add);
    }
}

/// One round of MD4 over `words` in this order. Inlined: its steps need no loop and no call.
#[inline(always)]
fn md4_round(
    [a, b, c, d]: &mut [u32; 4],
    words: &[u32; 8],
    mix: impl Fn(u32, u32, u32) -> u32,
    add: u32,
    shifts: [u32; 4],
    order: [usize; 8],
) {
    for (step, word) in order.into_iter().enumerate() {
        let mixed = a
            .wrapping_add(mix(*b, *c, *d))
            .wrapping_add(words[word])
            .wrapping_add(add)
            .rotate_left(shifts[step % 4]);
        // The word just made is the next step's `b`: roles rotate a, d, c, b.
        (*a, *b, *c, *d) = (*d, mixed, *b, *c);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let [mut b0, mut b1, ..] = *state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let half = |b: u32, k0: u32, k1: u32| {
            (b << 4).wrapping_add(k0) ^ b.wrapping_add(sum) ^ (b >> 5).wrapping_add(k1)
        };
        b0 = b0.wrapping_add(half(b1, key[0], key[1]));
        b1 = b1.wrapping_add(half(b0, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(b0);
    state[1] = state[1].wrapping_add(b1);
}

fn siphash24(key0: u64, key1: u64, bytes: &[u8]) -> u64 {
    fn rounds(v: &mut [u64; 4], count: usize) {
        for _ in 0..count {
            v[0] = v[0].wrapping_add(v[1]);
            v[1] = v[1].rotate_left(13) ^ v[0];
            v[0] = v[0].rotate_left(32);
            v[2] = v[2].wrapping_add(v[3]);
            v[3] = v[3].rotate_left(16) ^ v[2];
            v[0] = v[0].wrapping_add(v[3]);
            v[3] = v[3].rotate_left(21) ^ v[0];
            v[2] = v[2].wrapping_add(v[1]);
            v[1] = v[1].rotate_left(17) ^ v[2];
            v[2] = v[2].rotate_left(32);
        }
    }
    let mut v = [
        key0 ^ 0x736f_6d65_7073_6575,
        key1 ^ 0x646f_7261_6e64_6f6d,
        key0 ^ 0x6c79_6765_6e65_7261,
        key1 ^ 0x7465_6462_7974_6573,
    ];
    let mut mix = |word: u64| {
        v[3] ^= word;
        rounds(&mut v, 2);
        v[0] ^= word;
    };
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = len_u8(bytes.len());
    for chunk in chunks {
        mix(u64::from_le_bytes(chunk.try_into().expect("chunks are 8 bytes")));
    }
    mix(u64::from_le_bytes(last));
    v[2] ^= 0xFF;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    // As `debugfs dx_hash` prints them, for an empty seed and for this one.
    const SEED: [u32; 4] = [0xC3D2_E1F0, 0x8796_A5B4, 0x4B5A_6978, 0x0F1E_2D3C];
    const LONG: &[u8] = b"0123456789abcdef0123456789abcdef0";
    const LATIN: &[u8] = "héllo wörld".as_bytes();

    #[test]
    fn hashes_are_those_e2fsprogs_computes() {
        use HashVersion::*;
        let none = [0; 4];
        let (s, u) = (false, true);
        let full = &[b'x'; 255][..];
        for (version, unsigned, seed, name, hash, minor) in [
            (Legacy, s, none, &b"file"[..], 0x10c3_0fca, 0),
            (Legacy, s, SEED, LONG, 0x8aeb_8700, 0),
            (Legacy, s, none, LATIN, 0xcf7f_42c0, 0),
            (Legacy, u, none, LATIN, 0x32d9_75c4, 0),
            (Legacy, s, none, full, 0x3055_7da6, 0),
            (HalfMd4, s, none, b"a", 0xd5fa_7d7a, 0xacb4_8187),
            (HalfMd4, s, SEED, b"a", 0x66cf_a054, 0xe164_11a7),
            (HalfMd4, s, none, b"file", 0x019c_cbc2, 0xb9c6_49b1),
            (HalfMd4, s, SEED, b"file", 0xe95b_2412, 0x1d3f_0645),
            (HalfMd4, s, none, LONG, 0x0e2c_5682, 0x453b_8d31),
            (HalfMd4, u, SEED, LONG, 0x0fb4_a278, 0xc952_f5c0),
            (HalfMd4, s, none, LATIN, 0xd37b_5d86, 0x62fd_84d3),
            (HalfMd4, s, SEED, LATIN, 0x5524_cc22, 0x9640_0d3d),
            (HalfMd4, u, none, LATIN, 0x5c13_2bd2, 0x3428_bdcc),
            (HalfMd4, u, SEED, LATIN, 0x3166_9050, 0x8248_c4e7),
            (HalfMd4, s, none, full, 0x2aa7_169e, 0x655f_9d9c),
            (Tea, s, none, b"file", 0x53fc_f74e, 0x15e4_b547),
            (Tea, s, SEED, b"file", 0xd9de_d45a, 0x4274_c326),
            (Tea, s, SEED, LONG, 0xcba9_aa9c, 0x9377_5f53),
            (Tea, s, none, LATIN, 0xf87c_47d8, 0xf7d3_b02e),
            (Tea, u, none, LATIN, 0x9b58_bd52, 0x6433_1c9a),
            (Tea, u, SEED, LATIN, 0x847e_29fa, 0x3cd7_ada4),
            (Tea, s, none, full, 0x6c4c_00ee, 0x0eaf_db6b),
        ] {
            let got = NameHasher::new(version, unsigned, seed).hash(name);
            assert_eq!(got, NameHash { hash, minor }, "{version:?} {unsigned} {seed:x?} {name:?}");
        }
    }

    #[test]
    fn siphash_is_the_published_one() {
        // The reference implementation's vector: key 00..0F, input 00..0E.
        let bytes: [u8; 16] = core::array::from_fn(|i| i as u8);
        let key = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap());
        assert_eq!(siphash24(key(0), key(8), &bytes[..15]), 0xa129_ca61_49be_45e5);
        let words = [0x0302_0100, 0x0706_0504, 0x0b0a_0908, 0x0f0e_0d0c];
        let got = NameHasher::new(HashVersion::SipHash, false, words).hash(&bytes[..15]);
        assert_eq!(got, NameHash { hash: 0xa129_ca60, minor: 0x49be_45e5 });
    }

    #[test]
    fn the_end_of_readdir_is_no_hash() {
        assert_eq!(finish(0xFFFF_FFFF), 0xFFFF_FFFC);
        assert_eq!(finish(0xFFFF_FFFE), 0xFFFF_FFFC);
        assert_eq!(finish(0xFFFF_FFFD), 0xFFFF_FFFC);
        assert_eq!(finish(3), 2);
    }

    #[test]
    fn only_versions_that_occur_on_disk_have_a_code() {
        for code in 0..=255 {
            match HashVersion::from_code(code) {
                Some(version) => assert_eq!(version.code(), code),
                None => assert!(!matches!(code, 0..=2 | 6)),
            }
        }
    }
}

//! What a volume of some kinds contains before its runs: things that no workload can make.
//!
//! ```text
//!   folded root     every directory of a workload folds case: it has the flag from the root, which
//!                   got it before its first name
//!   /vault          encrypted, without its key: made as a plain directory, then patched on disk
//!
//!      0        0x20         160      164                          180
//!      ┌────────┬───────┬────┬────────┬─────┬───────┬─────────────┬─────┐
//!      │        │ flags │    │ magic  │ len │ index │ hash, value │ "c" │    a slot of 256 bytes
//!      └────────┴───────┴────┴────────┴─────┴───────┴─────────────┴─────┘
//!                 |= 0x800              = 1   trusted ──► encryption
//! ```

use crate::apply::stamp;
use crate::make::Make;
use extant::{InodeFlags, NewFile, Result, SetAttributes, XattrMode};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::xattr::NameIndex;
use std::sync::Arc;

/// What a volume contains before its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing.
    Empty,
    /// A root that folds case.
    FoldedRoot,
    /// `/f`, and `/d` with [`FULL_INDEX`] names for it; [`long_name`] gives the `n`th.
    FullIndex,
    /// `/vault`, an encrypted directory with an index, files and a directory. For volumes without
    /// checksums.
    Vault,
}

/// The number of names of 250 bytes that fill an index of two levels, in blocks of 1 KiB: the next
/// one adds a third.
pub const FULL_INDEX: u64 = 21_527;

/// A name of 250 bytes.
pub fn long_name(n: u64) -> String {
    format!("{n:-<250}")
}

/// The files of `/vault`; one directory more is in it.
pub const VAULT_FILES: usize = 40;

/// An encryption context: version 2, the modes that fscrypt uses for content and names, a key and a
/// nonce. Source: Linux kernel documentation, "fscrypt", encryption context.
const CONTEXT: [u8; 40] = {
    let mut context = [0x5A; 40];
    let head = [2, 1, 4, 0, 0, 0, 0, 0];
    let mut at = 0;
    while at < head.len() {
        context[at] = head[at];
        at += 1;
    }
    context
};
const SLOT: usize = 256;
/// Where the attributes of a slot begin, after 32 bytes of extra fields.
const ATTRIBUTES: usize = 160;
const MAGIC: [u8; 4] = 0xEA02_0000u32.to_le_bytes();
/// The flags of an inode.
const FLAGS: usize = 0x20;

/// Prepares a volume according to [`Prepared`].
pub fn prepare(make: &Make, what: Prepared, device: &Arc<MemoryDevice>) -> Result<()> {
    if what == Prepared::Empty {
        return Ok(());
    }
    let parts = make.parts(device)?;
    let fs = make.open_options(&parts).write(true).open_device(parts.volume)?;
    match what {
        Prepared::Empty => {}
        Prepared::FoldedRoot => {
            let flags = fs.metadata("/")?.flags() | InodeFlags::CASEFOLD;
            let wish = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
            fs.set_attributes("/", &wish)?;
            fs.create_dir("/lost+found", &NewFile::directory())?;
        }
        Prepared::FullIndex => {
            let file = fs.create_file("/f", &NewFile::default())?;
            let dir = fs.create_dir("/d", &NewFile::directory())?;
            (0..FULL_INDEX).try_for_each(|n| dir.hard_link(&file, long_name(n)))?;
        }
        Prepared::Vault => {
            let vault = fs.create_dir("/vault", &NewFile::directory())?;
            for n in 0..VAULT_FILES {
                let file = vault.create_file(format!("{n:0>32}"), &NewFile::default())?;
                file.open()?.write_all_at(&stamp(n, 0, 4096), 0)?;
                file.set_xattr("trusted.c", &CONTEXT, XattrMode::Any)?;
            }
            let inner = vault.create_dir("the directory...", &NewFile::directory())?;
            for node in [&vault, &inner] {
                node.set_xattr("trusted.c", &CONTEXT, XattrMode::Any)?;
            }
        }
    }
    fs.close()?;
    if what == Prepared::Vault {
        encrypt(device)?;
    }
    Ok(())
}

/// Turns every inode with the attribute "trusted.c" into an encrypted one.
fn encrypt(device: &MemoryDevice) -> Result<()> {
    let mut slot = [0; SLOT];
    let entry = ATTRIBUTES + MAGIC.len();
    for at in (0..device.len()).step_by(SLOT) {
        device.read_at(ByteOffset(at), &mut slot)?;
        let found = slot[ATTRIBUTES..entry] == MAGIC
            && slot[entry..entry + 2] == [1, NameIndex::TRUSTED.0]
            && slot[entry + 16] == b'c';
        if found {
            slot[entry + 1] = NameIndex::ENCRYPTION.0;
            slot[FLAGS + 1] |= (InodeFlags::ENCRYPT.bits() >> 8) as u8;
            device.write_at(ByteOffset(at), &slot)?;
        }
    }
    Ok(())
}

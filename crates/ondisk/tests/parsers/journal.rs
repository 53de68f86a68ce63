//! The blocks of the journal and the records of fast commits.
//! If there are several formats, the first byte of the data selects one.

use extant_base::{BlockSize, Site, Tid};
use extant_ondisk::byte_log::{self, HEADER_LEN, PAYLOAD_MAX, sum};
use extant_ondisk::fast_commit::{BlockWriter, FcSum, Record, Records};
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{
    BlockSum, Commit, Header, JournalSuperblock, LogFormat, Revokes, Tags, descriptor, revoke,
};

const AT: Site = Site::NOWHERE;

/// The format that a byte selects.
pub fn format_of(choice: u8) -> LogFormat {
    let sum = [BlockSum::None, BlockSum::V1, BlockSum::V2, BlockSum::V3];
    LogFormat {
        block_size: BlockSize::ALL[0],
        wide: choice & 4 != 0,
        sum: sum[usize::from(choice & 3)],
        seed: 5,
    }
}

/// The journal superblock.
pub fn superblock(data: &[u8]) {
    let size = BlockSize::ALL[2];
    let Ok(superblock) = JournalSuperblock::read(data, size, 1 << 20, AT) else { return };
    let end = superblock.log_end().unwrap();
    assert!(superblock.first < end && superblock.start.is_none_or(|start| start < end));
    let area = superblock.fast_commit_area();
    assert!(area.is_empty() || (area.start > end && area.end <= superblock.maxlen));
    let _ = superblock.features.names().count();
    let format = superblock.log_format();
    assert!(format.blocks_per_descriptor() > 0 && format.revokes_per_block() > 0);
    assert!(JournalSuperblock::users(data).count() <= 48);
    let mut again = data.to_vec();
    superblock.write(&mut again);
    assert_eq!(JournalSuperblock::read(&again, size, 1 << 20, AT).unwrap(), superblock);
}

/// Descriptor, revoke and commit blocks.
pub fn log_block(data: &[u8]) {
    let Some((&choice, block)) = data.split_first() else { return };
    let format = format_of(choice);
    let _ = Header::read(block);
    let _ =
        (descriptor::checksum_matches(block, &format), revoke::checksum_matches(block, &format));
    let tags = Tags::new(block, format, AT);
    let mut count = 0;
    for tag in tags.flatten() {
        let _ = tag.verify_copy(&format, Tid(1), block);
        count += 1;
    }
    assert!(count <= 1024 / 8);
    if let Ok(revokes) = Revokes::new(block, &format, AT) {
        assert!(revokes.count() <= 1024 / 4);
    }
    if let Some(commit) = Commit::read(block, &format) {
        let _ = commit.sum.accepts(TransactionCrc::default().with(block));
    }
}

/// A block of fast-commit records: read, and written again.
pub fn fast_commit(data: &[u8]) {
    let (mut copy, mut sum) = (vec![0; data.len().clamp(64, 65536)], FcSum::default());
    let mut writer = BlockWriter::new(&mut copy, FcSum::default());
    for located in Records::new(data, 256, AT) {
        let Ok(located) = located else { break };
        assert!(located.offset + located.bytes.len() <= data.len());
        match located.record {
            Record::Tail { .. } => {
                let _ = sum.at_tail(located.bytes);
            }
            Record::Head { .. } if !writer.is_empty() => {}
            Record::Pad => {}
            record => {
                let _ = writer.record(&record);
            }
        }
        sum = sum.with(located.bytes);
    }
    let _ = writer.tail(Tid(1));
    assert!(Records::new(&copy, 256, AT).all(|located| located.is_ok()));
}

/// A record of the byte log. The first byte selects which checksums are set right, so that damage
/// gets past them: bit 0 the header's, bit 1 the payload's.
pub fn byte_log(data: &[u8]) {
    let Some((&choice, record)) = data.split_first() else { return };
    let Some((head, rest)) = record.split_first_chunk::<HEADER_LEN>() else { return };
    let mut head = *head;
    let len = u32::from_le_bytes(head[0x10..0x14].try_into().unwrap());
    let payload = &rest[..rest.len().min(len as usize)];
    if choice & 2 != 0 {
        head[0x14..0x18].copy_from_slice(&sum(!0, payload).to_le_bytes());
    }
    if choice & 1 != 0 {
        head[0x1C..0x20].fill(0);
        let own = sum(!0, &head);
        head[0x1C..0x20].copy_from_slice(&own.to_le_bytes());
    }
    let Ok(header) = byte_log::Header::read(&head, record.len() as u64, AT) else { return };
    assert!(header.payload_len <= PAYLOAD_MAX && header.record_len() <= record.len() as u64);
    if let Ok(records) = header.records(payload, 256, AT) {
        assert!(records.len() * 4 <= payload.len());
    }
}

//! The entries of a directory block, by their lengths only, so that damaged ones are found, too.

use extant_ondisk::dirent::{HEAD_LEN, rec_len_decode};
use std::ops::Range;

/// Finds the names in `area`, whose entries end at `end`, and zeroes all bytes that belong to no
/// entry and no name. "." and ".." are not among the names.
pub(super) fn names(area: &mut [u8], end: usize) -> Vec<Range<usize>> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < end {
        let Some(head) = area[at..end].first_chunk::<HEAD_LEN>() else {
            area[at..end].fill(0);
            break;
        };
        let rec_len = rec_len_decode(u16::from_le_bytes([head[4], head[5]]), area.len());
        let is_used = head[..4] != [0; 4];
        let start = at + HEAD_LEN;
        let name = start..start + usize::from(head[6]);
        if rec_len < HEAD_LEN || rec_len > end - at || !rec_len.is_multiple_of(4) {
            // Nothing says where the next entry is.
            area[start..end].fill(0);
            break;
        }
        let next = at + rec_len;
        if is_used && name.end <= next {
            area[name.end..next].fill(0);
            if !matches!(&area[name.clone()], b"" | b"." | b"..") {
                names.push(name);
            }
        } else {
            area[start..next].fill(0);
        }
        at = next;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::names;

    fn entry(ino: u8, rec_len: u8, name: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![ino, 0, 0, 0, rec_len, 0, name.len() as u8, 1];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn what_is_no_name_becomes_zeros() {
        let mut block = entry(9, 12, b".", b"\0\0\0");
        block.extend(entry(9, 20, b"name", b"old name"));
        block.extend(entry(0, 16, b"removed!", b""));
        block.extend(entry(7, 5, b"damaged", b"secret"));
        let end = block.len();
        assert_eq!(names(&mut block, end).first(), Some(&(20..24)));
        assert_eq!(names(&mut block, end).len(), 1);
        assert_eq!(&block[20..32], b"name\0\0\0\0\0\0\0\0");
        assert_eq!(block[40..48], [0; 8]);
        assert_eq!(block[48..56], [7, 0, 0, 0, 5, 0, 7, 1], "the damage stays");
        assert!(block[56..].iter().all(|byte| *byte == 0));
    }
}

//! UUIDs on the command line.

use extant::Environment;
use extant::disk::parse_uuid;

/// Source of a new volume's UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This UUID.
    Given([u8; 16]),
    /// Random (version 4).
    Random,
    /// From the time and random bytes (version 1).
    Time,
}

impl Choice {
    /// The UUID.
    pub(crate) fn bytes(self, environment: &Environment) -> [u8; 16] {
        let mut uuid = [0; 16];
        match self {
            Choice::Given(uuid) => return uuid,
            Choice::Random => {
                environment.fill(&mut uuid);
                uuid[6] = uuid[6] & 0x0F | 0x40;
            }
            Choice::Time => {
                environment.fill(&mut uuid);
                // RFC 9562, version 1: 100 ns since 1582-10-15, and a random node number, which has
                // the multicast bit set.
                let now = environment.now();
                let since_1582 = i128::from(now.sec) + 12_219_292_800;
                let ticks = (since_1582 * 10_000_000 + i128::from(now.nsec / 100)).max(0) as u64;
                uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
                uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
                uuid[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0FFF | 0x1000).to_be_bytes());
                uuid[10] |= 1;
            }
        }
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }
}

/// Parses a UUID, or the name of a source.
pub(crate) fn choice(text: &str) -> Result<Choice, String> {
    match text {
        "random" => Ok(Choice::Random),
        "time" => Ok(Choice::Time),
        "clear" | "null" => Ok(Choice::Given([0; 16])),
        _ => parse(text).map(Choice::Given),
    }
}

/// Parses 32 hex digits, with or without hyphens.
pub(crate) fn parse(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("'{text}' is not a UUID like 3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21");
    parse_uuid(text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::Timestamp;

    #[test]
    fn a_uuid_is_read_in_groups_or_not() {
        let bytes: [u8; 16] = std::array::from_fn(|n| n as u8);
        assert_eq!(parse("00010203-0405-0607-0809-0A0b0c0d0e0f"), Ok(bytes));
        assert_eq!(parse("000102030405060708090a0b0c0d0e0f"), Ok(bytes));
        for text in
            ["", "0001", "000102030405060708090a0b0c0d0e0g", "0001-02030405060708090a0b0c0d0e0f"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn made_uuids_say_their_version() {
        let environment = Environment::fixed(Timestamp::from_secs(0), 7);
        let random = Choice::Random.bytes(&environment);
        assert_eq!((random[6] >> 4, random[8] >> 6), (4, 2));
        let time = Choice::Time.bytes(&environment);
        // 1970-01-01 is tick 0x01B21DD213814000.
        assert_eq!(time[..8], [0x13, 0x81, 0x40, 0x00, 0x1D, 0xD2, 0x11, 0xB2]);
        assert_eq!(time[8] >> 6, 2);
    }
}

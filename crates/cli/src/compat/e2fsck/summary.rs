//! The last line: how full the volume is.
//!
//! ```text
//!   IMG: 12/128 files (0.0% non-contiguous), 70/512 blocks
//! ```

use super::Check;
use crate::compat::console::Console;
use crate::failure::Failure;
use extant::check::Stats;

/// The line of one volume.
pub(super) struct Summary<'a> {
    name: &'a str,
    stats: &'a Stats,
}

impl<'a> Summary<'a> {
    pub(super) fn of(check: &'a Check, stats: &'a Stats) -> Summary<'a> {
        Summary { name: &check.name, stats }
    }

    pub(super) fn print(&self, console: &mut Console) -> Result<(), Failure> {
        let Stats { inodes, inodes_used, blocks, blocks_used, fragmented, .. } = self.stats;
        let share = share(*fragmented, *inodes_used);
        console.print(format_args!(
            "{}: {inodes_used}/{inodes} files ({share}% non-contiguous), \
             {blocks_used}/{blocks} blocks\n",
            self.name
        ))
    }
}

/// A share in percent with one digit after the point, rounded as the original does.
fn share(part: u64, all: u64) -> String {
    let hundredths = part.saturating_mul(10_000) / all.max(1);
    let tenths = (hundredths + 5) / 10;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_is_rounded_to_a_tenth() {
        for (part, all, text) in
            [(0, 11, "0.0"), (1, 11, "9.1"), (3, 14, "21.4"), (1, 3, "33.3"), (2, 3, "66.7")]
        {
            assert_eq!(share(part, all), text);
        }
    }
}

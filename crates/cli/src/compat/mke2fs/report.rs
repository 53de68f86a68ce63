//! The lines about a new volume.

use super::request::Request;
use crate::compat::console::Console;
use crate::failure::Failure;
use crate::shown;
use extant::mkfs::Planned;
use extant_ondisk::geometry::Geometry;
use std::fmt::Write;

/// Text that the original fills with counters while it works, and erases.
const DONE: &str = "done                            \n";
/// Columns of a line with backups.
const COLUMNS: usize = 72;

/// Prints what the volume will be.
pub(super) fn volume(
    request: &Request,
    planned: &Planned,
    verbose: bool,
    console: &mut Console,
) -> Result<(), Failure> {
    let sb = &planned.superblock;
    let block_bytes = sb.block_size.bytes();
    let (blocks, inodes) = (sb.blocks_count, sb.inodes_count);
    if verbose {
        details(request, planned, console)?;
    } else {
        let kib = block_bytes / 1024;
        console.print(format_args!(
            "Creating filesystem with {blocks} {kib}k blocks and {inodes} inodes\n"
        ))?;
    }
    if sb.groups_count().is_none_or(|groups| groups <= 1) {
        return console.print(format_args!("\n"));
    }
    if sb.uuid != [0; 16] {
        console.print(format_args!("Filesystem UUID: {}\n", shown::uuid(&sb.uuid)))?;
    }
    let backups = backups(planned);
    console.print(format_args!("Superblock backups stored on blocks: {backups}\n\n"))
}

fn details(request: &Request, planned: &Planned, console: &mut Console) -> Result<(), Failure> {
    let sb = &planned.superblock;
    let block_bytes = sb.block_size.bytes() as u64;
    let (blocks, inodes) = (sb.blocks_count, sb.inodes_count);
    let label = String::from_utf8_lossy(&sb.volume_name);
    let label = label.trim_end_matches('\0');
    let log = block_bytes.ilog2() - 10;
    let (fragments, per_group) = match sb.log_cluster_ratio {
        0 => (format!("Fragment size={block_bytes} (log={log})"), sb.clusters_per_group),
        ratio => {
            let log = log + ratio;
            (format!("Cluster size={} (log={log})", block_bytes << ratio), sb.clusters_per_group)
        }
    };
    let unit = if sb.log_cluster_ratio == 0 { "fragments" } else { "clusters" };
    let (stride, width) = (sb.raid_stride, sb.raid_stripe_width);
    let reserved = sb.reserved_blocks;
    let percent = 100.0 * reserved as f64 / blocks as f64;
    let groups = sb.groups_count().unwrap_or(1);
    console.print(format_args!(
        "Filesystem label={label}\nOS type: Linux\nBlock size={block_bytes} (log={log})\n\
         {fragments}\nStride={stride} blocks, Stripe width={width} blocks\n\
         {inodes} inodes, {blocks} blocks\n\
         {reserved} blocks ({percent:.2}%) reserved for the super user\n\
         First data block={}\n",
        sb.first_data_block,
    ))?;
    if request.block_bytes > 0 && sb.reserved_gdt_blocks > 0 {
        let per_block = block_bytes / u64::from(sb.desc_size.max(32));
        let table = u64::from(groups).div_ceil(per_block) + u64::from(sb.reserved_gdt_blocks);
        let most = table * per_block * u64::from(sb.blocks_per_group);
        console.print(format_args!("Maximum filesystem blocks={most}\n"))?;
    }
    let plural = if groups > 1 { "s" } else { "" };
    console.print(format_args!(
        "{groups} block group{plural}\n{} blocks per group, {per_group} {unit} per group\n\
         {} inodes per group\n",
        sb.blocks_per_group, sb.inodes_per_group,
    ))
}

/// The first blocks of the groups with copies of the superblock, in lines.
fn backups(planned: &Planned) -> String {
    let Ok(geometry) = Geometry::new(&planned.superblock) else { return String::new() };
    let mut text = String::new();
    let mut left = 0;
    let groups = geometry.super_groups().filter(|group| group.0 != 0);
    for block in groups.filter_map(|group| geometry.first_block(group)) {
        let need = block.0.max(1).ilog10() as usize + 3;
        if !text.is_empty() {
            text.push_str(", ");
        }
        if need > left {
            text.push_str("\n\t");
            left = COLUMNS;
        }
        left -= need;
        let _ = write!(text, "{}", block.0);
    }
    text
}

/// Prints that the tables are being made.
pub(super) fn tables(planned: &Planned, console: &mut Console) -> Result<(), Failure> {
    console.print(format_args!("Allocating group tables: {DONE}Writing inode tables: {DONE}"))?;
    match planned.journal_blocks {
        0 => Ok(()),
        blocks => console.print(format_args!("Creating journal ({blocks} blocks): done\n")),
    }
}

/// Prints that the volume is complete.
pub(super) fn complete(planned: &Planned, console: &mut Console) -> Result<(), Failure> {
    let interval = planned.superblock.mmp_update_interval;
    if interval > 0 {
        console.print(format_args!(
            "Multiple mount protection is enabled with update interval {interval} seconds.\n"
        ))?;
    }
    console
        .print(format_args!("Writing superblocks and filesystem accounting information: done\n\n"))
}

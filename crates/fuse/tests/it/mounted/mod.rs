//! The filesystem in memory, mounted: system calls of programs go through the kernel over both
//! transports.

mod attributes;
mod content;
mod names;

use crate::rig::Rig;

/// Runs each test over `/dev/fuse`, and over io_uring where the kernel supports it.
macro_rules! over_both {
    ($($module:ident :: $test:ident;)*) => {
        mod by_dev {
            $(#[test]
            fn $test() {
                super::run(extant_fuse::Transport::Dev, super::$module::$test);
            })*
        }
        mod by_uring {
            $(#[test]
            fn $test() {
                super::run(extant_fuse::Transport::Best, super::$module::$test);
            })*
        }
    };
}

over_both! {
    content::files_are_made_written_read_and_removed;
    content::large_transfers_arrive_whole;
    content::direct_and_cached_io_agree;
    content::shared_mappings_reach_the_file;
    content::ranges_are_allocated_punched_sought_and_copied;
    content::many_threads_find_what_they_wrote;
    names::ten_thousand_names_are_listed_once_and_forgotten;
    names::rename_heeds_its_flags;
    names::unnamed_files_get_names;
    names::links_of_both_kinds_and_special_files;
    attributes::attributes_are_set_and_shown;
    attributes::extended_attributes_keep_their_bounds;
    attributes::statfs_reports_the_space_in_use;
}

fn run(transport: extant_fuse::Transport, test: fn(&Rig)) {
    if !extant_testkit::judge::require(&[extant_testkit::judge::Judge::Fuse]) {
        return;
    }
    if let Some(rig) = Rig::new(transport) {
        test(&rig);
        rig.end();
    }
}

//! Random operations on volumes of many kinds.

use extant::BlockSize;
use extant::mkfs::MkfsOptions;
use extant_model_tests::engine::Memory;
use extant_model_tests::op::Pools;
use extant_model_tests::run::Make;
use extant_model_tests::{Kind, run};
use extant_testkit::require;

const FEW: Pools = Pools { names: 40, long_percent: 10 };
const LONG: Pools = Pools { names: 300, long_percent: 90 };

fn kind(name: &'static str, options: MkfsOptions) -> Kind {
    let make = Make::Extant(Box::new(options));
    let memory = Memory { metadata: 8 << 20, pages: 8 << 20, drop_behind: false };
    Kind { name, make, mib: 32, folds: false, pools: FEW, projects: false, memory }
}

fn features(wish: &str) -> MkfsOptions {
    MkfsOptions::new().features(wish).expect("features of mkfs")
}

fn small(options: MkfsOptions) -> MkfsOptions {
    options.block_size(BlockSize::from_bytes(1024).expect("a block size"))
}

#[test]
fn modern_volumes() {
    require!(E2fsprogs);
    run(&kind("4k", MkfsOptions::new()), 3000);
    run(&Kind { pools: LONG, ..kind("1k, long names", small(MkfsOptions::new())) }, 5000);
    let memory = Memory { metadata: 64 << 10, pages: 128 << 10, drop_behind: false };
    run(&Kind { memory, ..kind("little memory", MkfsOptions::new()) }, 1500);
    let memory = Memory { drop_behind: true, ..memory };
    run(&Kind { memory, ..kind("don't-cache", small(MkfsOptions::new())) }, 1500);
    let memory = Memory { pages: 0, ..memory };
    run(&Kind { memory, ..kind("no page cache", MkfsOptions::new()) }, 1500);
    run(&kind("no orphan file", features("^orphan_file")), 3000);
    run(&Kind { pools: LONG, ..kind("large_dir", small(features("large_dir"))) }, 3000);
}

#[test]
fn old_volumes() {
    require!(E2fsprogs);
    run(&kind("ext2", MkfsOptions::of_type("ext2").expect("a type")), 2000);
    run(&Kind { pools: LONG, ..kind("ext3", MkfsOptions::of_type("ext3").expect("a type")) }, 2000);
    run(&kind("no checksums", features("^metadata_csum")), 2000);
    let make = Make::Mke2fs("-t ext2 -b 1024 -I 128 -O ^dir_index");
    run(&Kind { make, ..kind("128-byte inodes", MkfsOptions::new()) }, 2000);
    let make = Make::Mke2fs("-t ext4 -b 2048 -O ^has_journal,^extents,^64bit");
    run(&Kind { make, pools: LONG, ..kind("no extents", MkfsOptions::new()) }, 2000);
}

#[test]
fn volumes_with_features_of_their_own() {
    require!(E2fsprogs);
    run(&kind("inline_data", features("inline_data")), 3000);
    let inline = small(features("inline_data"));
    run(&Kind { pools: LONG, ..kind("inline_data, long names", inline) }, 2000);
    run(&Kind { folds: true, ..kind("casefold", features("casefold")) }, 3000);
    let bigalloc = features("bigalloc").cluster_bytes(16 << 10);
    run(&Kind { pools: LONG, ..kind("bigalloc", bigalloc) }, 2000);
    run(&Kind { projects: true, ..kind("quota", features("quota,project")) }, 2000);
}

#[test]
fn volumes_with_data_csum() {
    require!(E2fsprogs);
    run(&kind("data_csum", features("data_csum")), 3000);
    let inline = small(features("data_csum,inline_data"));
    run(&Kind { pools: LONG, ..kind("data_csum, 1k", inline) }, 2000);
    let memory = Memory { metadata: 64 << 10, pages: 128 << 10, drop_behind: true };
    run(&Kind { memory, ..kind("data_csum, little memory", features("data_csum,quota")) }, 1500);
    let memory = Memory { pages: 0, drop_behind: false, ..memory };
    run(&Kind { memory, ..kind("data_csum, no page cache", features("data_csum")) }, 1500);
}

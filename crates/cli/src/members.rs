//! The members of a volume on several devices, as `info` shows them.

use crate::image::Image;
use crate::{amount, shown};
use extant::FileDevice;
use extant::raid::record_of;
use extant_base::ByteOffset;
use extant_blockdev::Slice;
use extant_ondisk::member::{Kind, Member};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The layout of a volume on its members.
#[derive(Serialize)]
pub(crate) struct LayoutInfo {
    /// `raid0`, `raid1`.
    kind: &'static str,
    uuid: String,
    /// Number of members, whether named or not.
    count: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    stripe_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region_bytes: Option<u64>,
    /// The members that were named.
    members: Vec<MemberInfo>,
}

#[derive(Serialize)]
struct MemberInfo {
    image: String,
    index: u16,
    generation: u64,
    /// `in use`, `rebuilding`, `dropped`, `out of date`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt_bytes: Option<u64>,
    /// Number of regions that may differ from the other members'.
    dirty_regions: usize,
}

/// The record of the member in the file `path`.
pub(crate) fn member_in(path: &Path, offset: u64) -> Option<Member> {
    let device = FileDevice::open(path).ok()?;
    let part = Slice::from_offset(device, ByteOffset(offset)).ok()?;
    record_of(&part).ok().flatten()
}

impl LayoutInfo {
    /// Reads the members' records. `None` for a volume on one device.
    pub(crate) fn of(image: &Image) -> Option<LayoutInfo> {
        let paths = std::iter::once(&image.path).chain(&image.members);
        let known: Vec<_> =
            paths.filter_map(|path| Some((path, member_in(path, image.offset)?))).collect();
        let freshest =
            known.iter().map(|(_, member)| member).max_by_key(|member| member.generation)?;
        let members = known.iter().map(|(path, member)| MemberInfo {
            image: shown::encoded(path.as_os_str().as_bytes()),
            index: member.index,
            generation: member.generation,
            state: match () {
                _ if freshest.active & (1 << member.index) == 0 => "dropped",
                _ if member.generation + 1 < freshest.generation => "out of date",
                _ if member.generation < freshest.generation && freshest.confirmed => "out of date",
                _ if member.rebuilding => "rebuilding",
                _ => "in use",
            },
            rebuilt_bytes: member.rebuilding.then_some(member.rebuilt_bytes),
            dirty_regions: member.intent.count(),
        });
        let (kind, stripe_bytes, region_bytes) = match freshest.kind {
            Kind::Striped { stripe_bytes } => ("raid0", Some(stripe_bytes), None),
            Kind::Mirrored { region_log2 } => ("raid1", None, Some(1 << region_log2)),
        };
        let (uuid, count) = (shown::uuid(&freshest.uuid), freshest.count);
        Some(LayoutInfo {
            kind,
            uuid,
            count,
            stripe_bytes,
            region_bytes,
            members: members.collect(),
        })
    }

    /// Lines for people.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut text = format!("{} of {} members", self.kind, self.count);
        if let Some(bytes) = self.stripe_bytes {
            text += &format!(", stripes of {}", amount::shown(bytes.into()));
        }
        let mut rows = vec![("Layout", format!("{text}, UUID {}", self.uuid))];
        for member in &self.members {
            let mut text = format!(
                "{}: {}, {}, generation {}",
                member.index, member.image, member.state, member.generation
            );
            if let Some(bytes) = member.rebuilt_bytes {
                text += &format!(", {} done", amount::shown(bytes));
            }
            if member.dirty_regions > 0 {
                text += &format!(", {} regions to compare", member.dirty_regions);
            }
            rows.push(("Member", text));
        }
        rows
    }
}

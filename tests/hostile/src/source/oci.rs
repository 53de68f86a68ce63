//! A container image: an OCI layout, or the output of `docker save`.
//!
//! ```text
//!   input:  choice (1) │ blob │ blob │ …   choice: bit 0 puts it in a tar, not in a directory
//!   blob:   kind (1) │ length (2) │ bytes  kind: layer, JSON, index, `manifest.json`, any file
//! ```
//! In JSON, `@N` is replaced by the digest of blob N (one digit) and `#N` by its length, so that a
//! changed blob is still found.

use super::tar::{self, Archive};
use super::{SCRATCH, build};
use extant_image::{SourceKind, SourceSpec};
use sha2::{Digest, Sha256};
use std::path::Path;

const LAYER: u8 = 0;
const JSON: u8 = 1;
const INDEX: u8 = 2;
const MANIFEST: u8 = 3;

/// Reads the image and builds a volume from it.
pub fn run(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let mut blobs: Vec<(String, usize)> = Vec::new();
    let mut files: Vec<(String, Vec<u8>)> = vec![("oci-layout".into(), b"{}".to_vec())];
    while let Some((&[kind, low, high], more)) = rest.split_first_chunk() {
        let (bytes, more) =
            more.split_at(usize::from(u16::from_le_bytes([low, high])).min(more.len()));
        rest = more;
        let bytes = match kind % 5 {
            LAYER => bytes.to_vec(),
            _ => filled(bytes, &blobs),
        };
        let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        let name = match kind % 5 {
            INDEX => "index.json".to_owned(),
            MANIFEST => "manifest.json".to_owned(),
            LAYER | JSON => format!("blobs/sha256/{digest}"),
            _ => format!("{}.json", blobs.len()),
        };
        blobs.push((digest, bytes.len()));
        files.push((name, bytes));
        if files.len() > 12 {
            break;
        }
    }
    SCRATCH.with(|scratch| {
        let path = scratch.file("container");
        if choice & 1 == 0 {
            write_all(&path, &files);
        } else {
            let archive =
                files.iter().fold(Archive::default(), |tar, (name, bytes)| tar.file(name, bytes));
            std::fs::write(&path, archive.end()).expect("room");
        }
        build(&SourceSpec { path: path.clone(), kind: Some(SourceKind::Image) }, scratch.path());
        let gone = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        gone.expect("it is ours");
    });
}

fn write_all(dir: &Path, files: &[(String, Vec<u8>)]) {
    std::fs::create_dir_all(dir.join("blobs/sha256")).expect("room");
    for (name, bytes) in files {
        std::fs::write(dir.join(name), bytes).expect("room");
    }
}

/// JSON with the digests and lengths filled in.
fn filled(json: &[u8], blobs: &[(String, usize)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let blob = bytes.peek().and_then(|digit| blobs.get(usize::from(digit.wrapping_sub(b'0'))));
        match (byte, blob) {
            (b'@', Some((digest, _))) => out.extend_from_slice(digest.as_bytes()),
            (b'#', Some((_, len))) => out.extend_from_slice(len.to_string().as_bytes()),
            _ => {
                out.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    out
}

/// Images of both forms, of one layer and of several, with indexes in indexes.
pub fn seeds() -> Vec<Vec<u8>> {
    let blob = |kind: u8, bytes: &[u8]| {
        let len = u16::try_from(bytes.len()).expect("a small blob").to_le_bytes();
        [&[kind, len[0], len[1]], bytes].concat()
    };
    let layers: Vec<Vec<u8>> = tar::seeds().into_iter().map(|seed| seed[1..].to_vec()).collect();
    let manifest = br#"{"schemaVersion":2,"config":{"digest":"sha256:@0","size":#0},"layers":[
        {"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:@1","size":#1},
        {"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:@2","size":#2}]}"#;
    let index = br#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",
        "digest":"sha256:@3","size":#3,"platform":{"os":"linux","architecture":"amd64"},
        "annotations":{"org.opencontainers.image.ref.name":"latest"}}]}"#;
    let outer = br#"{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:@4","size":#4}]}"#;
    let config = br#"{"rootfs":{"type":"layers","diff_ids":["sha256:@0","sha256:@1"]}}"#;
    let docker = br#"[{"Config":"2.json","RepoTags":["name:tag"],"Layers":["blobs/sha256/@0","blobs/sha256/@1"]}]"#;
    let mut seeds = Vec::new();
    for choice in [0, 1] {
        for (one, two) in [(0, 6), (2, 4), (3, 4), (1, 7)] {
            let both = [blob(LAYER, &layers[one]), blob(LAYER, &layers[two])].concat();
            let front = [blob(JSON, b"{}"), both.clone(), blob(JSON, manifest)].concat();
            seeds.push([&[choice], &front[..], &blob(INDEX, index)].concat());
            let nested = [blob(JSON, index), blob(INDEX, outer)].concat();
            seeds.push([&[choice], &front[..], &nested].concat());
            let saved = [blob(4, config), blob(MANIFEST, docker)].concat();
            seeds.push([&[choice], &both[..], &saved].concat());
        }
    }
    seeds
}

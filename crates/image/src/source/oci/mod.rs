//! Container images: layers applied over each other as a runtime would.
//!
//! ```text
//!   layer 1   etc/{a,b}  usr/…            ─┐
//!   layer 2   etc/.wh.a  etc/c             ├─► Overlay ──► etc/{b,c}  usr/…
//!   layer 3   usr/.wh..wh..opq  usr/x     ─┘              only usr/x
//! ```
//!
//! Layers may be plain, gzip or zstd. Each is verified while it is read: the packed bytes against
//! the layer's digest, and the unpacked bytes against the diff id in the image's config. No layer
//! is unpacked to files. The output of `skopeo copy … dir:` is read like a layout whose blobs lie
//! in one directory.
//! Source: OCI Image Format Specification 1.1, "Image Layer Filesystem Changeset".

mod manifest;
mod store;

pub(crate) use manifest::Choice;
pub(crate) use store::Store;

use crate::error::SourceError;
use crate::overlay::Overlay;
use crate::source::SourceOptions;
use crate::source::pack::{MAGIC_LEN, Packing};
use crate::source::tar::{self, Meaning, Region, Spool};
use crate::tree::Tree;
use extant::Progress;
use manifest::{Config, JSON_MAX, RootFs};
use std::path::{Path, PathBuf};
use store::{Digest, Hashed};

/// The most bytes of the file that contains a directory's version.
const VERSION_MAX: u64 = 4096;
/// The most layers; Docker allows 127.
const LAYERS_MAX: usize = 1000;

/// True if a store looks like an image: an OCI layout, or what `docker save` or
/// `skopeo copy … dir:` writes.
pub(crate) fn is_image(store: &Store<'_>) -> bool {
    is_layout(store) || is_skopeo(store) || is_docker(store)
}

/// `skopeo copy … dir:` writes a file that identifies its output.
fn is_skopeo(store: &Store<'_>) -> bool {
    store.has("manifest.json")
        && store.has("version")
        && store
            .read("version", VERSION_MAX)
            .is_ok_and(|bytes| bytes.starts_with(b"Directory Transport Version: 1."))
}

fn is_layout(store: &Store<'_>) -> bool {
    store.has("oci-layout") && store.has("index.json")
}

/// A root filesystem may contain a `manifest.json` of its own. Only one that parses as a list of
/// images identifies an image.
fn is_docker(store: &Store<'_>) -> bool {
    store.has("manifest.json")
        && store.read("manifest.json", JSON_MAX).is_ok_and(|bytes| {
            serde_json::from_slice::<Vec<manifest::DockerImage>>(&bytes)
                .is_ok_and(|images| !images.is_empty())
        })
}

/// A layer to be applied.
struct Layer {
    file: String,
    /// Digest of the stored file.
    digest: Option<Digest>,
    /// Digest of the unpacked tar.
    diff_id: Option<Digest>,
    size: Option<u64>,
}

/// Reads the image of a store.
pub(crate) fn read_image(
    store: &Store<'_>,
    options: &SourceOptions,
    progress: &dyn Progress,
) -> Result<Tree, SourceError> {
    let layers = if is_layout(store) {
        oci_layers(store, "index.json", &options.choice)?
    } else if is_skopeo(store) {
        oci_layers(store, "manifest.json", &options.choice)?
    } else if is_docker(store) {
        docker_layers(store, &options.choice)?
    } else {
        let fault = "is no image: it has neither oci-layout with index.json nor manifest.json";
        return Err(SourceError::source(store.name(), fault));
    };
    if layers.len() > LAYERS_MAX {
        let fault = format!("has {} layers, more than {LAYERS_MAX} are not taken", layers.len());
        return Err(SourceError::source(store.name(), fault));
    }
    let mut overlay = options.overlay();
    let mut spool = None;
    for layer in layers {
        apply(store, &layer, &mut overlay, &mut spool, options, progress)?;
        overlay.next_layer();
    }
    overlay.finish()
}

fn oci_layers(store: &Store<'_>, first: &str, choice: &Choice) -> Result<Vec<Layer>, SourceError> {
    let manifest::Found { manifest, config } = manifest::find(store, first, choice)?;
    let ids = config.rootfs.map(|rootfs| rootfs.diff_ids);
    if let Some(ids) = ids.as_ref().filter(|ids| ids.len() != manifest.layers.len()) {
        let (layers, ids) = (manifest.layers.len(), ids.len());
        let fault = format!("its manifest names {layers} layers, its config {ids} diff ids");
        return Err(SourceError::source(store.name(), fault));
    }
    let layer = |(at, descriptor): (usize, &manifest::Descriptor)| {
        let kind = descriptor.media_type.as_str();
        let is_tar = [".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip", ".tar.zstd"];
        if !kind.is_empty() && !is_tar.iter().any(|end| kind.ends_with(end)) {
            let kind = crate::error::Shown::bytes(kind.as_bytes());
            let fault =
                format!("has a layer of type {kind}, which holds no files that can be read");
            return Err(SourceError::source(store.name(), fault));
        }
        let digest = descriptor.digest(store)?;
        let id = ids.as_ref().and_then(|ids| ids.get(at));
        let diff_id = id.map(|id| diff_id(id, store.name())).transpose()?;
        let (file, size) = (store.blob_path(&digest), Some(descriptor.size));
        Ok(Layer { file, digest: Some(digest), diff_id, size })
    };
    manifest.layers.iter().enumerate().map(layer).collect()
}

fn docker_layers(store: &Store<'_>, choice: &Choice) -> Result<Vec<Layer>, SourceError> {
    let image = manifest::find_docker(store, choice)?;
    let bytes = store.read(safe(store, &image.config)?, JSON_MAX)?;
    // The config's name is its digest. After it is verified, the diff ids are trusted as well.
    let hex = image.config.trim_end_matches(".json").rsplit('/').next().unwrap_or("");
    if let Some(digest) = Digest::parse(&format!("sha256:{hex}")) {
        digest.verify(digest.hasher().update(&bytes), store.path_of(&image.config))?;
    }
    let config: Config = manifest::parse(&bytes, store, &image.config)?;
    let Some(RootFs { diff_ids: ids }) = &config.rootfs else {
        let fault = "has no rootfs, which names the layers' diff ids";
        return Err(SourceError::source(store.path_of(&image.config), fault));
    };
    if ids.len() != image.layers.len() {
        let fault = format!("names {} layers but {} diff ids", image.layers.len(), ids.len());
        return Err(SourceError::source(store.path_of("manifest.json"), fault));
    }
    let layer = |(file, id): (&String, &String)| {
        let diff_id = diff_id(id, &store.path_of(&image.config))?;
        let file = safe(store, file)?.to_owned();
        Ok(Layer { file, digest: None, diff_id: Some(diff_id), size: None })
    };
    image.layers.iter().zip(ids).map(layer).collect()
}

/// The digest of an unpacked layer, from the config at `path`.
fn diff_id(id: &str, path: &Path) -> Result<Digest, SourceError> {
    Digest::parse(id).ok_or_else(|| {
        let shown = crate::error::Shown::bytes(id.as_bytes());
        SourceError::source(path, format!("diff id {shown} is no sha256 or sha512"))
    })
}

/// Checks that a path of `manifest.json` stays in the store.
fn safe<'p>(store: &Store<'_>, path: &'p str) -> Result<&'p str, SourceError> {
    let bad = path.is_empty()
        || path.starts_with('/')
        || path.contains('\0')
        || path.split('/').any(|part| part == "..");
    if bad {
        let shown = crate::error::Shown::bytes(path.as_bytes());
        let fault = format!("names {shown}, which leads out of the image: refused");
        return Err(SourceError::source(store.path_of("manifest.json"), fault));
    }
    Ok(path)
}

fn apply(
    store: &Store<'_>,
    layer: &Layer,
    overlay: &mut Overlay,
    spool: &mut Option<Spool>,
    options: &SourceOptions,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let name: PathBuf = store.path_of(&layer.file);
    let broken = |e| SourceError::io("read", &name, e);
    let region = store.open(&layer.file)?;
    if let Some(size) = layer.size.filter(|size| *size != region.len) {
        let fault = format!("has {} bytes, not {size}: damaged", region.len);
        return Err(SourceError::source(name, fault));
    }
    let mut start = [0; MAGIC_LEN];
    let len = region.read_at(0, &mut start).map_err(broken)?;
    let packing = Packing::detect(&start[..len]).map_err(|f| SourceError::source(&name, f))?;
    if packing == Packing::Plain {
        // For a layer that is not packed both digests are the same.
        let diff_id = layer.diff_id.as_ref().filter(|id| layer.digest.as_ref() != Some(*id));
        for digest in layer.digest.iter().chain(diff_id) {
            verify(&region, digest, name.clone())?;
        }
        return tar::read_in_place(region, &name, Meaning::Layer, overlay, progress);
    }
    let spool = match spool {
        Some(spool) => spool,
        None => spool.insert(options.spool()?),
    };
    let mut packed = layer.digest.as_ref().map(|d| Hashed::new(region.reader(), d));
    let mut plain;
    let unpacked = match &mut packed {
        Some(packed) => packing.unpack(packed).map_err(broken)?,
        None => packing.unpack(region.reader()).map_err(broken)?,
    };
    let read = match &layer.diff_id {
        Some(id) => {
            plain = Hashed::new(unpacked, id);
            let stream = Box::new(&mut plain);
            let read = tar::read_ahead(stream, spool, &name, Meaning::Layer, overlay, progress);
            // After an error the rest is not unpacked: the file may be a decompression bomb.
            read.and_then(|()| {
                let sum = plain.finish().map_err(broken)?;
                id.verify(sum, name.clone())
            })
        }
        None => tar::read_ahead(unpacked, spool, &name, Meaning::Layer, overlay, progress),
    };
    // A wrong digest explains any damage that was found, so it is reported instead.
    if let (Some(digest), Some(packed)) = (&layer.digest, packed) {
        digest.verify(packed.finish().map_err(broken)?, name)?;
    }
    read
}

fn verify(region: &Region, digest: &Digest, name: PathBuf) -> Result<(), SourceError> {
    let sum = Hashed::new(region.reader(), digest).finish();
    digest.verify(sum.map_err(|e| SourceError::io("read", &name, e))?, name)
}

#[cfg(test)]
mod tests;

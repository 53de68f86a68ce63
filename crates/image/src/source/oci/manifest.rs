//! The JSON files of images: which manifest, and which layers in which order.
//!
//! ```text
//!   index.json ──► index ──► manifest ──► config (diff ids)
//!                  (nested)      └──────► layers: digest, size, media type
//!   manifest.json ─────────────► Config, Layers: paths              docker save
//! ```
//!
//! Source: OCI Image Format Specification 1.1, "Image Layout", "Image Index", "Image Manifest";
//! Docker Image Specification 1.2; names of platforms as containerd's `platforms` normalizes them.

use super::store::{Digest, Store};
use crate::error::SourceError;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most bytes of a JSON file.
pub(crate) const JSON_MAX: u64 = 16 << 20;
/// The most levels of nested indexes.
const DEPTH_MAX: usize = 8;
/// The most manifests that are examined.
const MANIFESTS_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// A descriptor of the specification: media type, digest and size of a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    platform: Option<Platform>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

/// How well a platform matches the wanted one. A later variant is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Same system and architecture, with some variant where none was requested.
    Variant,
    /// An equivalent spelling, or the default variant of the architecture.
    Same,
    /// Exactly the same spelling.
    Exact,
}

impl Platform {
    /// `os/architecture` or `os/architecture/variant`.
    fn words(&self) -> String {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}"));
        format!("{}/{}{}", self.os, self.architecture, variant.unwrap_or_default())
    }

    /// Parses such a text.
    fn parse(words: &str) -> Option<Platform> {
        let mut words = words.split('/').map(str::to_owned);
        let (os, architecture, variant) = (words.next()?, words.next()?, words.next());
        words.next().is_none().then_some(Platform { os, architecture, variant })
    }

    /// The normalized form, as in containerd.
    fn normal(&self) -> Platform {
        let [os, architecture] = [&self.os, &self.architecture].map(|word| word.to_lowercase());
        let variant = self.variant.as_ref().map(|variant| variant.to_lowercase());
        let variant = variant.filter(|variant| !variant.is_empty());
        let (architecture, variant) = match (architecture.as_str(), variant.as_deref()) {
            ("amd64" | "x86_64" | "x86-64", None | Some("v1")) => ("amd64", None),
            ("amd64" | "x86_64" | "x86-64", variant) => ("amd64", variant),
            ("i386", _) => ("386", None),
            ("arm64" | "aarch64", None | Some("8" | "v8" | "v8.0")) => ("arm64", None),
            ("arm64" | "aarch64", Some("9" | "v9" | "v9.0")) => ("arm64", Some("v9")),
            ("arm64" | "aarch64", variant) => ("arm64", variant),
            ("arm", None | Some("7")) | ("armhf", _) => ("arm", Some("v7")),
            ("arm", Some("5")) => ("arm", Some("v5")),
            ("arm", Some("6")) | ("armel", _) => ("arm", Some("v6")),
            ("arm", Some("8")) => ("arm", Some("v8")),
            (other, variant) => (other, variant),
        };
        Platform { os, architecture: architecture.into(), variant: variant.map(Into::into) }
    }

    fn fit(&self, wanted: &str) -> Option<Fit> {
        if self.words() == wanted {
            return Some(Fit::Exact);
        }
        let wanted = Platform::parse(wanted)?;
        let (one, other) = (self.normal(), wanted.normal());
        if (&one.os, &one.architecture) != (&other.os, &other.architecture) {
            return None;
        }
        match (one.variant == other.variant, wanted.variant) {
            (true, _) => Some(Fit::Same),
            (false, None) => Some(Fit::Variant),
            (false, Some(_)) => None,
        }
    }
}

/// A manifest, with the layers in the order in which they are applied.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) config: Option<Descriptor>,
    pub(crate) layers: Vec<Descriptor>,
}

/// An image of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DockerImage {
    pub(crate) config: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

/// The config of an image. A config of another artifact, or of an old tool, has no `rootfs`.
#[derive(Default, Deserialize)]
pub(crate) struct Config {
    pub(crate) rootfs: Option<RootFs>,
}

/// An image that was found.
pub(crate) struct Found {
    pub(crate) manifest: Manifest,
    pub(crate) config: Config,
}

/// The first file to read: an index or, in a directory with one image, its manifest, which has
/// layers.
#[derive(Deserialize)]
struct First {
    layers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(crate) struct RootFs {
    pub(crate) diff_ids: Vec<String>,
}

/// Which of several images the caller requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// `os/architecture` or `os/architecture/variant`.
    pub(crate) platform: Option<String>,
    /// A tag or name.
    pub(crate) reference: Option<String>,
}

const DEFAULT_PLATFORM: &str = "linux/amd64";
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const IMAGE_NAME: &str = "io.containerd.image.name";

/// Reads JSON. An error names the file, line and column.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(
    bytes: &[u8],
    store: &Store<'_>,
    file: &str,
) -> Result<T, SourceError> {
    serde_json::from_slice(bytes).map_err(|e| {
        SourceError::source(store.path_of(file), format!("not what it should be: {e}"))
    })
}

impl Descriptor {
    pub(crate) fn digest(&self, store: &Store<'_>) -> Result<Digest, SourceError> {
        Digest::parse(&self.digest).ok_or_else(|| {
            let shown = crate::error::Shown::bytes(self.digest.as_bytes());
            SourceError::source(store.name(), format!("digest {shown} is no sha256 or sha512"))
        })
    }

    fn is_index(&self) -> bool {
        matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.index.v1+json"
                | "application/vnd.docker.distribution.manifest.list.v2+json"
        )
    }

    fn is_manifest(&self) -> bool {
        matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.manifest.v1+json"
                | "application/vnd.docker.distribution.manifest.v2+json"
        )
    }

    fn is_config(&self) -> bool {
        matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.config.v1+json"
                | "application/vnd.docker.container.image.v1+json"
        )
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether this is a signature or provenance that build tools store next to images.
    fn is_attestation(&self) -> bool {
        self.annotation("vnd.docker.reference.type").is_some()
            || self.platform.as_ref().is_some_and(|p| p.os == "unknown")
    }

    fn is_named(&self, reference: &str) -> bool {
        [REF_NAME, IMAGE_NAME].iter().any(|key| self.annotation(key) == Some(reference))
    }

    fn fit(&self, wanted: &str) -> Option<Fit> {
        self.platform.as_ref()?.fit(wanted)
    }

    fn shown(&self) -> String {
        let name = self.annotation(REF_NAME).or(self.annotation(IMAGE_NAME));
        let platform = self.platform.as_ref().map(Platform::words);
        let shown = match (name, platform) {
            (Some(name), Some(platform)) => format!("{name} ({platform})"),
            (Some(name), None) => name.to_owned(),
            (None, Some(platform)) => platform,
            (None, None) => self.digest.clone(),
        };
        crate::error::Shown::bytes(shown.as_bytes())
    }
}

/// Reads a blob that a descriptor names, and verifies its size and digest.
fn blob(store: &Store<'_>, descriptor: &Descriptor) -> Result<(Vec<u8>, String), SourceError> {
    let digest = descriptor.digest(store)?;
    let bytes = store.read_blob(&digest, JSON_MAX)?;
    let path = store.blob_path(&digest);
    if bytes.len() as u64 != descriptor.size {
        let fault = format!("has {} bytes, not {}: damaged", bytes.len(), descriptor.size);
        return Err(SourceError::source(store.path_of(&path), fault));
    }
    Ok((bytes, path))
}

/// Finds the requested manifest: the one that matches the platform best (default linux/amd64), or
/// the only one. `first` is the first file to read.
pub(crate) fn find(store: &Store<'_>, first: &str, choice: &Choice) -> Result<Found, SourceError> {
    let bytes = store.read(first, JSON_MAX)?;
    if parse::<First>(&bytes, store, first)?.layers.is_some() {
        return with_config(store, parse(&bytes, store, first)?);
    }
    let index: Index = parse(&bytes, store, first)?;
    let mut found: Vec<Descriptor> = Vec::new();
    let mut open: Vec<(Descriptor, usize)> = Vec::new();
    let named = |d: &Descriptor| choice.reference.as_deref().is_none_or(|r| d.is_named(r));
    open.extend(index.manifests.into_iter().filter(named).rev().map(|d| (d, 1)));
    while let Some((descriptor, depth)) = open.pop() {
        if descriptor.is_index() {
            if depth > DEPTH_MAX || found.len() + open.len() > MANIFESTS_MAX {
                return Err(SourceError::source(store.name(), "indexes are nested too deeply"));
            }
            let (bytes, path) = blob(store, &descriptor)?;
            let index: Index = parse(&bytes, store, &path)?;
            open.extend(index.manifests.into_iter().rev().map(|d| (d, depth + 1)));
        } else if (descriptor.is_manifest() || descriptor.media_type.is_empty())
            && !descriptor.is_attestation()
        {
            // An index may list one manifest twice, with two tags.
            if !found.iter().any(|f| f.digest == descriptor.digest) {
                found.push(descriptor);
            }
        }
        if found.len() > MANIFESTS_MAX {
            return Err(SourceError::source(store.name(), "holds more than 10000 manifests"));
        }
    }
    let wanted = choice.platform.as_deref().unwrap_or(DEFAULT_PLATFORM);
    let fits = || found.iter().filter_map(|d| Some((d.fit(wanted)?, d)));
    let best = fits().map(|(fit, _)| fit).max();
    let fitting: Vec<_> = fits().filter(|(fit, _)| Some(*fit) == best).map(|(_, d)| d).collect();
    let chosen = match (&fitting[..], &found[..]) {
        ([one], _) => one,
        ([], [one]) if choice.platform.is_none() || one.platform.is_none() => one,
        _ => return Err(ambiguous(store, choice, wanted, &fitting, &found)),
    };
    let (bytes, path) = blob(store, chosen)?;
    let manifest: Manifest = parse(&bytes, store, &path)?;
    with_config(store, manifest)
}

/// A manifest with its config, which contains the digests of the unpacked layers.
fn with_config(store: &Store<'_>, manifest: Manifest) -> Result<Found, SourceError> {
    let mut config = Config::default();
    if let Some(descriptor) = &manifest.config {
        // An incomplete image is refused, even if its config has another media type.
        let (bytes, path) = blob(store, descriptor)?;
        if descriptor.is_config() {
            config = parse(&bytes, store, &path)?;
        }
    }
    Ok(Found { manifest, config })
}

fn ambiguous(
    store: &Store<'_>,
    choice: &Choice,
    wanted: &str,
    fitting: &[&Descriptor],
    found: &[Descriptor],
) -> SourceError {
    let list = |all: &mut dyn Iterator<Item = &Descriptor>| {
        let mut names: Vec<String> = all.map(Descriptor::shown).collect();
        let more = names.len().saturating_sub(10);
        names.truncate(10);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        names.join(", ") + &more
    };
    let fault = match (found, fitting) {
        ([], _) => match &choice.reference {
            Some(reference) => format!("holds no image named {reference}"),
            None => "holds no image".into(),
        },
        (_, []) => {
            format!("holds no image for {wanted}, choose by platform: {}", list(&mut found.iter()))
        }
        _ => format!(
            "holds several images for {wanted}, choose by name: {}",
            list(&mut fitting.iter().copied())
        ),
    };
    SourceError::source(store.name(), fault)
}

/// Finds the requested image in the output of `docker save`.
pub(crate) fn find_docker(store: &Store<'_>, choice: &Choice) -> Result<DockerImage, SourceError> {
    let bytes = store.read("manifest.json", JSON_MAX)?;
    let mut images: Vec<DockerImage> = parse(&bytes, store, "manifest.json")?;
    let tags = |image: &DockerImage| image.repo_tags.clone().unwrap_or_default();
    if let Some(reference) = &choice.reference {
        images.retain(|image| tags(image).contains(reference));
    }
    match images.len() {
        1 => Ok(images.remove(0)),
        0 => Err(SourceError::source(store.name(), "holds no image of that name")),
        _ => {
            let names: Vec<String> = images.iter().flat_map(tags).take(10).collect();
            let names = crate::error::Shown::bytes(names.join(", ").as_bytes());
            let fault = format!("holds several images, choose by name: {names}");
            Err(SourceError::source(store.name(), fault))
        }
    }
}

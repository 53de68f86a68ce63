//! Images made by these tests: layouts in directories and in tars, old and new output of `docker
//! save`.

use super::*;
use crate::entry::{Kind, NodeId};
use crate::source::SourceSpec;
use crate::source::tar::tests::TarBuilder;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// A layout being written.
#[derive(Default)]
struct Layout {
    files: BTreeMap<String, Vec<u8>>,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Layout {
    fn blob(&mut self, kind: &str, bytes: &[u8]) -> String {
        let hex = hex(bytes);
        self.files.insert(format!("blobs/sha256/{hex}"), bytes.to_vec());
        format!(r#"{{"mediaType":"{kind}","digest":"sha256:{hex}","size":{}"#, bytes.len())
    }

    /// Adds an image; returns its descriptor without the closing brace.
    fn image(&mut self, layers: &[Vec<u8>]) -> String {
        self.image_with(layers, b"{}")
    }

    /// As `image`, with this config.
    fn image_with(&mut self, layers: &[Vec<u8>], config: &[u8]) -> String {
        let config = self.blob("application/vnd.oci.image.config.v1+json", config) + "}";
        let layers: Vec<String> = layers
            .iter()
            .map(|l| self.blob("application/vnd.oci.image.layer.v1.tar+gzip", l) + "}")
            .collect();
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes())
    }

    fn finish(&mut self, manifests: &[String]) {
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, manifests.join(","));
        self.files.insert("index.json".into(), index.into_bytes());
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec();
        self.files.insert("oci-layout".into(), layout);
    }

    fn write(&self, dir: &Path) {
        for (name, bytes) in &self.files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    fn tar(&self) -> Vec<u8> {
        self.files
            .iter()
            .fold(TarBuilder::default(), |tar, (name, bytes)| tar.file(name, bytes))
            .end()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Two gzip members, as parallel compressors write.
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let member = |bytes| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    };
    [member(a), member(b)].concat()
}

/// Three layers: plain, gzip, zstd.
fn layers() -> Vec<Vec<u8>> {
    let one = TarBuilder::default()
        .dir("etc")
        .file("etc/a", b"a1")
        .file("etc/b", b"b1")
        .file("usr/lib/x", b"x1")
        .file("usr/lib/y", b"y1")
        .file("gone/deep/z", b"z1")
        .entry(b'2', "lib", "usr/lib", b"")
        .end();
    let two = TarBuilder::default()
        .file("etc/.wh.a", b"")
        .file("etc/c", b"c2")
        .entry(b'1', "etc/b-too", "etc/b", b"")
        .file("usr/lib/new", b"n2")
        .file("usr/lib/.wh..wh..opq", b"")
        .file(".wh.gone", b"")
        .file(".wh.never-was", b"")
        .file(".wh..wh.plnk", b"")
        .end();
    let three = TarBuilder::default().file("gone/back", b"g3").file("lib/over", b"o3").end();
    vec![one, gzip(&two), zstd::encode_all(&three[..], 1).unwrap()]
}

fn check_tree(tree: &Tree) {
    let mut names = Vec::new();
    tree.each_name(&mut |path, _, _| {
        names.push(String::from_utf8(path.to_vec()).unwrap());
        true
    });
    let want = [
        "etc",
        "etc/b",
        "etc/b-too",
        "etc/c",
        "gone",
        "gone/back",
        "lib",
        "lib/over",
        "usr",
        "usr/lib",
        "usr/lib/new",
    ];
    assert_eq!(names, want);
    let read = |path: &str| tree.reader().read(tree.find(path.as_bytes()).unwrap()).unwrap();
    assert_eq!(read("etc/b-too"), b"b1");
    assert_eq!(tree.node(tree.find(b"etc/b").unwrap()).links(), 2);
    assert_eq!(read("usr/lib/new"), b"n2");
    assert_eq!(read("gone/back"), b"g3");
    assert!(tree.node(tree.find(b"lib").unwrap()).kind.is_directory());
}

fn read(path: &Path, options: &SourceOptions) -> Result<Tree, SourceError> {
    Tree::read(&[SourceSpec::new(path)], options, &())
}

fn read_default(path: &Path) -> Result<Tree, SourceError> {
    read(path, &SourceOptions::new())
}

#[test]
fn layers_are_put_over_each_other_with_their_whiteouts() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let image = layout.image(&layers()) + "}";
    layout.finish(&[image]);
    layout.write(dir.path());
    check_tree(&read_default(dir.path()).unwrap());

    // The same in a tar, and in a compressed tar.
    let tar = dir.path().join("image.tar");
    std::fs::write(&tar, layout.tar()).unwrap();
    check_tree(&read_default(&tar).unwrap());
    std::fs::write(&tar, gzip(&layout.tar())).unwrap();
    check_tree(&read_default(&tar).unwrap());

    // With `tar:` it is read as a tar.
    let spec = SourceSpec::parse(format!("tar:{}", tar.display()).as_ref());
    let tree = Tree::read(&[spec], &SourceOptions::new(), &()).unwrap();
    assert!(tree.find(b"oci-layout").is_some());
}

#[test]
fn the_image_of_the_platform_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let one = |name: &str| vec![TarBuilder::default().file(name, b"").end()];
    let platform = |d: String, arch: &str, tag: &str| {
        format!(
            r#"{d},"platform":{{"os":"linux","architecture":"{arch}"}},
               "annotations":{{"org.opencontainers.image.ref.name":"{tag}"}}}}"#
        )
    };
    let amd = platform(layout.image(&one("amd")), "amd64", "v1");
    let arm = platform(layout.image(&one("arm")), "arm64", "v1");
    let inner = format!(r#"{{"manifests":[{arm},{amd}]}}"#);
    let nested = layout.blob("application/vnd.oci.image.index.v1+json", inner.as_bytes()) + "}";
    layout.finish(&[nested]);
    layout.write(dir.path());
    assert!(read_default(dir.path()).unwrap().find(b"amd").is_some());
    let arm = SourceOptions::new().platform("linux/arm64");
    assert!(read(dir.path(), &arm).unwrap().find(b"arm").is_some());
    let error = read(dir.path(), &SourceOptions::new().platform("linux/s390x")).unwrap_err();
    let error = error.to_string();
    let want =
        "holds no image for linux/s390x, choose by platform: v1 (linux/arm64), v1 (linux/amd64)";
    assert!(error.ends_with(want), "{error}");

    let mut layout = Layout::default();
    let a = platform(layout.image(&one("a")), "amd64", "v1");
    let b = platform(layout.image(&one("b")), "amd64", "v2");
    layout.finish(&[a, b]);
    let dir = tempfile::tempdir().unwrap();
    layout.write(dir.path());
    let error = read_default(dir.path()).unwrap_err().to_string();
    assert!(error.contains("several images for linux/amd64, choose by name"), "{error}");
    let v2 = SourceOptions::new().image_name("v2");
    assert!(read(dir.path(), &v2).unwrap().find(b"b").is_some());
}

#[test]
fn the_platform_that_fits_best_is_taken() {
    let several = "several images for";
    for (wanted, all, taken) in [
        ("linux/amd64", &["linux/amd64/v3", "linux/amd64"][..], "linux/amd64"),
        ("linux/amd64", &["linux/amd64/v1", "linux/amd64/v3"], "linux/amd64/v1"),
        ("linux/amd64", &["linux/amd64/v1", "linux/amd64"], "linux/amd64"),
        ("linux/amd64", &["linux/amd64/v3", "linux/arm64"], "linux/amd64/v3"),
        ("linux/amd64", &["linux/amd64/v2", "linux/amd64/v3"], several),
        ("linux/amd64/v3", &["linux/amd64", "linux/amd64/v3"], "linux/amd64/v3"),
        ("linux/amd64/v3", &["linux/amd64", "linux/amd64/v2"], "holds no image"),
        ("linux/x86_64", &["linux/amd64", "linux/386"], "linux/amd64"),
        ("Linux/AMD64", &["linux/amd64", "linux/386"], "linux/amd64"),
        ("linux/arm64/v8", &["linux/arm64", "linux/arm/v8"], "linux/arm64"),
        ("linux/arm64", &["linux/arm64/v8", "linux/arm64/v9"], "linux/arm64/v8"),
        ("linux/aarch64", &["linux/arm64/v8", "linux/arm/v7"], "linux/arm64/v8"),
        ("linux/arm64", &["linux/arm64/v8", "linux/arm64"], "linux/arm64"),
        ("linux/arm64/v8", &["linux/arm64", "linux/arm64/v8"], "linux/arm64/v8"),
        ("linux/arm", &["linux/arm/v6", "linux/arm/v7"], "linux/arm/v7"),
        ("linux/arm", &["linux/arm/v6", "linux/arm/v5"], several),
        ("linux/arm/v7", &["linux/arm/v6", "linux/arm"], "linux/arm"),
        ("linux/arm/6", &["linux/arm/v6", "linux/arm"], "linux/arm/v6"),
        ("linux", &["linux/amd64", "linux/arm64"], "holds no image"),
        ("windows/amd64", &["linux/amd64", "windows/amd64"], "windows/amd64"),
    ] {
        let mut layout = Layout::default();
        let image = |platform: &&str| {
            let parts: Vec<&str> = platform.split('/').collect();
            let file = platform.replace('/', "-");
            let image = layout.image(&[TarBuilder::default().file(&file, b"").end()]);
            let (os, architecture) = (parts[0], parts[1]);
            let variant = parts.get(2).map(|variant| format!(r#","variant":"{variant}""#));
            let variant = variant.unwrap_or_default();
            format!(
                r#"{image},"platform":{{"os":"{os}","architecture":"{architecture}"{variant}}}}}"#
            )
        };
        let images: Vec<String> = all.iter().map(image).collect();
        layout.finish(&images);
        let dir = tempfile::tempdir().unwrap();
        layout.write(dir.path());
        match read(dir.path(), &SourceOptions::new().platform(wanted)) {
            Ok(tree) => {
                let found = tree.find(taken.replace('/', "-").as_bytes());
                assert!(found.is_some(), "{wanted} of {all:?} is not {taken}");
            }
            Err(error) => {
                let said = error.to_string();
                assert!(!all.contains(&taken) && said.contains(taken), "{wanted}: {said}");
            }
        }
    }
}

#[test]
fn docker_save_of_old_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let one = TarBuilder::default().file("a", b"1").file("b", b"1").end();
    let two = TarBuilder::default().file(".wh.a", b"").end();
    let config = format!(
        r#"{{"rootfs":{{"type":"layers","diff_ids":["sha256:{}","sha256:{}","sha256:{}"]}}}}"#,
        hex(&one),
        hex(&two),
        hex(&one)
    );
    let name = format!("{}.json", hex(config.as_bytes()));
    let manifest = format!(
        r#"[{{"Config":"{name}","RepoTags":["x:1"],"Layers":["1/layer.tar","2/layer.tar","3/layer.tar"]}}]"#
    );
    let save = |two: &[u8], config: &str| {
        TarBuilder::default()
            .file("1/layer.tar", &one)
            .file("2/layer.tar", two)
            .entry(b'2', "3/layer.tar", "../1/layer.tar", b"")
            .file(&name, config.as_bytes())
            .file("manifest.json", manifest.as_bytes())
            .end()
    };
    let path = dir.path().join("save.tar");
    std::fs::write(&path, save(&two, &config)).unwrap();
    let tree = read_default(&path).unwrap();
    assert!(tree.find(b"a").is_some() && tree.find(b"b").is_some());
    // Layers may be packed: the diff id is the digest of the unpacked bytes.
    std::fs::write(&path, save(&gzip(&two), &config)).unwrap();
    assert!(read_default(&path).is_ok());
    let other = TarBuilder::default().file("evil", b"").end();
    for other in [gzip(&other), other] {
        std::fs::write(&path, save(&other, &config)).unwrap();
        let error = read_default(&path).unwrap_err().to_string();
        assert!(error.contains("2/layer.tar: its content has the digest"), "{error}");
    }
    std::fs::write(&path, save(&two, &(config.clone() + " "))).unwrap();
    assert!(read_default(&path).unwrap_err().to_string().contains("has the digest"));
}

#[test]
fn a_pipe_in_the_place_of_a_blob_is_refused_at_once() {
    let mut layout = Layout::default();
    let image = layout.image(&layers()) + "}";
    layout.finish(&[image]);
    let blobs: Vec<_> = layout.files.keys().filter(|n| n.starts_with("blobs/")).collect();
    for name in blobs {
        let dir = tempfile::tempdir().unwrap();
        layout.write(dir.path());
        let blob = dir.path().join(name);
        std::fs::remove_file(&blob).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &blob, fifo, mode, 0).unwrap();
        let error = read_default(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not a file") && error.contains(name.as_str()), "{error}");
    }
}

#[test]
fn a_damaged_image_is_refused_naming_the_blob() {
    let mut layout = Layout::default();
    let image = layout.image(&layers()) + "}";
    layout.finish(&[image]);
    let blobs: Vec<String> =
        layout.files.keys().filter(|n| n.starts_with("blobs/")).cloned().collect();
    for name in blobs {
        let bytes = layout.files[&name].clone();
        for bent in [
            Some([&bytes[..bytes.len() - 1], &[bytes[bytes.len() - 1] ^ 1]].concat()),
            Some(bytes[..bytes.len() / 2].to_vec()),
            Some(Vec::new()),
            None,
        ] {
            let dir = tempfile::tempdir().unwrap();
            let mut damaged = Layout { files: layout.files.clone() };
            match &bent {
                Some(bent) => damaged.files.insert(name.clone(), bent.clone()),
                None => damaged.files.remove(&name),
            };
            damaged.write(dir.path());
            let error = read_default(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&name), "{error}");
        }
    }
}

#[test]
fn a_config_of_another_size_or_digest_is_refused() {
    let mut layout = Layout::default();
    let config = layout.blob("application/vnd.oci.image.config.v1+json", b"{\"os\":\"linux\"}");
    let image = |layout: &mut Layout, config: &str| {
        let manifest = format!(r#"{{"config":{config},"layers":[]}}"#);
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let image = layout.blob(kind, manifest.as_bytes()) + "}";
        layout.finish(&[image]);
        let dir = tempfile::tempdir().unwrap();
        layout.write(dir.path());
        read_default(dir.path()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(image(&mut layout, &format!("{config}}}")), Ok(()));
    let longer = config.replace("\"size\":14", "\"size\":15");
    let error = image(&mut layout, &format!("{longer}}}")).unwrap_err();
    assert!(error.ends_with("has 14 bytes, not 15: damaged"), "{error}");
    let name = format!("blobs/sha256/{}", hex(b"{\"os\":\"linux\"}"));
    layout.files.insert(name.clone(), b"{\"os\":\"linuy\"}".to_vec());
    let error = image(&mut layout, &format!("{config}}}")).unwrap_err();
    assert!(error.contains(&name) && error.contains("its content has the digest"), "{error}");
}

#[test]
fn hostile_json_is_refused() {
    let index = |manifests: &str| format!(r#"{{"manifests":[{manifests}]}}"#);
    let deep = "[".repeat(100_000);
    for (text, message) in [
        (index(r#"{"digest":"sha256:../../../etc/passwd","size":1}"#), "is no sha256 or sha512"),
        (index(""), "holds no image"),
        (index(r#"{"digest":"x"}"#), "not what it should be: missing field `size`"),
        (deep, "not what it should be"),
        ("{}".into(), "holds no image"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Layout::default();
        layout.finish(&[]);
        layout.files.insert("index.json".into(), text.into_bytes());
        layout.write(dir.path());
        let error = read_default(dir.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!error.contains('\n'));
    }
    // An index that contains its own digest cannot be made, but a chain of indexes can.
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let mut next = layout.image(&layers()) + "}";
    for _ in 0..20 {
        let kind = "application/vnd.oci.image.index.v1+json";
        next = layout.blob(kind, index(&next).as_bytes()) + "}";
    }
    layout.finish(&[next]);
    layout.write(dir.path());
    assert!(read_default(dir.path()).unwrap_err().to_string().contains("nested too deeply"));
}

#[test]
fn a_layer_cannot_lead_out_through_its_own_link() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let evil = TarBuilder::default().entry(b'2', "l", "/etc", b"").file("l/passwd", b"").end();
    let image = layout.image(&[evil]) + "}";
    layout.finish(&[image]);
    layout.write(dir.path());
    let error = read_default(dir.path()).unwrap_err().to_string();
    assert!(error.contains("entry l/passwd at byte 512: its path leads through l"), "{error}");
}

#[test]
fn a_whiteout_spares_what_its_own_layer_put() {
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::default();
    let one = TarBuilder::default().file("a", b"old").file("d/x", b"1").file("d/y", b"1").end();
    let two = TarBuilder::default()
        .file("a", b"new")
        .file(".wh.a", b"")
        .file("d/y", b"2")
        .file(".wh.d", b"")
        .entry(b'1', "a-too", "a", b"")
        .end();
    let image = layout.image(&[one, two]) + "}";
    layout.finish(&[image]);
    layout.write(dir.path());
    let tree = read_default(dir.path()).unwrap();
    assert_eq!(tree.reader().read(tree.find(b"a").unwrap()).unwrap(), b"new");
    assert!(tree.find(b"d/x").is_none() && tree.find(b"d/y").is_some());
    assert_eq!(tree.children(NodeId::ROOT).len(), 3);
    assert!(matches!(tree.node(tree.find(b"a-too").unwrap()).kind, Kind::File { size: 3, .. }));
}

/// A config with the digests of unpacked layers.
fn config(unpacked: &[&[u8]]) -> Vec<u8> {
    let ids: Vec<String> =
        unpacked.iter().map(|layer| format!(r#""sha256:{}""#, hex(layer))).collect();
    format!(r#"{{"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#, ids.join(",")).into_bytes()
}

#[test]
fn an_unpacked_layer_must_be_the_one_that_the_config_names() {
    let layers = layers();
    let mut two = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&layers[1][..]), &mut two)
        .unwrap();
    let three = zstd::decode_all(&layers[2][..]).unwrap();
    let read_with = |config: Vec<u8>| {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Layout::default();
        let image = layout.image_with(&layers, &config) + "}";
        layout.finish(&[image]);
        layout.write(dir.path());
        read_default(dir.path()).map_err(|error| error.to_string())
    };
    check_tree(&read_with(config(&[&layers[0], &two, &three])).unwrap());
    for wrong in 0..3 {
        let mut ids: [&[u8]; 3] = [&layers[0], &two, &three];
        ids[wrong] = b"another";
        let error = read_with(config(&ids)).unwrap_err();
        assert!(error.contains("its content has the digest sha256:"), "{error}");
    }
    let error = read_with(config(&[&layers[0], &two])).unwrap_err();
    assert!(error.ends_with("its manifest names 3 layers, its config 2 diff ids"), "{error}");
}

#[test]
fn what_skopeo_copies_to_a_directory_is_an_image() {
    let layers = layers();
    let mut layout = Layout::default();
    let descriptor = layout.image(&layers);
    let manifest = descriptor.split('"').find(|part| part.starts_with("sha256:")).unwrap();
    let manifest = format!("blobs/sha256/{}", &manifest[7..]);
    // The blobs lie in one directory, and their names are only the hexadecimal digits.
    let mut flat = Layout::default();
    for (name, bytes) in &layout.files {
        let name = match *name == manifest {
            true => "manifest.json",
            false => name.rsplit('/').next().unwrap(),
        };
        flat.files.insert(name.to_owned(), bytes.clone());
    }
    let version = b"Directory Transport Version: 1.1\n".to_vec();
    flat.files.insert("version".into(), version);
    let dir = tempfile::tempdir().unwrap();
    flat.write(dir.path());
    check_tree(&read_default(dir.path()).unwrap());
    // With several platforms there is an index, and the manifests' names contain their digits.
    let hex = manifest.rsplit('/').next().unwrap().to_owned();
    let bytes = flat.files.remove("manifest.json").unwrap();
    flat.files.insert(format!("{hex}.manifest.json"), bytes);
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{descriptor},"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#
    );
    flat.files.insert("manifest.json".into(), index.into_bytes());
    let dir = tempfile::tempdir().unwrap();
    flat.write(dir.path());
    check_tree(&read_default(dir.path()).unwrap());
    // A blob that does not match its name is refused.
    let blob = flat.files.iter_mut().find(|(name, _)| name.len() == 64).unwrap();
    blob.1.push(b' ');
    flat.write(dir.path());
    assert!(read_default(dir.path()).is_err());
}

#[test]
fn an_archive_that_unpacks_to_more_than_the_limit_is_refused() {
    let zeros = vec![0; 8 << 20];
    let one = TarBuilder::default().file("bomb", &zeros).end();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    let limited = |limit: u64| {
        let spool = tempfile::tempdir().unwrap();
        let options = SourceOptions::new().max_unpacked(limit).spool_dir(spool.path());
        read(&path, &options).map_err(|error| error.to_string())
    };
    let long_end = [one.clone(), vec![0; 8 << 20]].concat();
    for bytes in [
        one.clone(),
        gzip(&one),
        zstd::encode_all(&one[..], 1).unwrap(),
        // The bytes after the end mark are unpacked, too.
        gzip(&long_end),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        let error = limited(4 << 20).unwrap_err();
        let want = "unpacks to more than 4194304 bytes, the limit that was given: not taken";
        assert!(error.ends_with(want), "{error}");
        assert!(limited(32 << 20).is_ok());
    }
    // The layers of an image count together.
    let mut layout = Layout::default();
    let image = layout.image(&[gzip(&one), zstd::encode_all(&one[..], 1).unwrap()]) + "}";
    layout.finish(&[image]);
    std::fs::write(&path, layout.tar()).unwrap();
    assert!(limited(12 << 20).unwrap_err().contains("unpacks to more than 12582912 bytes"));
    assert!(limited(20 << 20).is_ok());
}

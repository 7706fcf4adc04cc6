//! Uploads that are small and want to be large: each is refused in words, and nothing of the box notices.

use std::io::Write;

use flate2::{Compress, Compression, FlushCompress};
use rstest::rstest;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::server::{Server, metadata, wait_until};

const MIB: usize = 1 << 20;
/// A registry that is never asked: nothing of this gets so far.
const NOWHERE: &str = "http://127.0.0.1:1/";
/// Most memory of the server, KiB, in a debug build.
const MOST_KIB: u64 = 96 * 1024;

/// Gzip of `head` and so many mebibytes of zeros.
fn packed(head: &[u8], mib: usize) -> Vec<u8> {
    let deflate = |bytes: &[u8]| {
        let (mut compress, mut out) =
            (Compress::new(Compression::best(), false), Vec::with_capacity(bytes.len() + 100));
        compress.compress_vec(bytes, &mut out, FlushCompress::Full).expect("compressed");
        out
    };
    let zeros = vec![0; MIB];
    let mut sum = crc32fast::Hasher::new();
    sum.update(head);
    let mut of_zeros = crc32fast::Hasher::new();
    of_zeros.update(&zeros);
    let mut gzip = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
    gzip.extend(deflate(head));
    let block = deflate(&zeros);
    for _ in 0..mib {
        gzip.extend(&block);
        sum.combine(&of_zeros);
    }
    gzip.extend([3, 0]);
    gzip.extend(sum.finalize().to_le_bytes());
    gzip.extend(u32::try_from(head.len() + mib * MIB).expect("a size").to_le_bytes());
    gzip
}

fn head(kind: u8, name: &str, size: usize) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).expect("a name");
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, bytes) in files {
        archive.extend(head(b'0', name, bytes.len()));
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// `blobs/sha256/<hex>` and its bytes.
fn blob(value: &Value) -> (String, Vec<u8>) {
    let bytes = value.to_string().into_bytes();
    (format!("blobs/sha256/{}", hex::encode(Sha256::digest(&bytes))), bytes)
}

fn named(blob: &(String, Vec<u8>), times: usize) -> Value {
    let digest = blob.0.replace("blobs/sha256/", "sha256:");
    let one = json!({"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest, "size": blob.1.len()});
    json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": vec![one; times]})
}

/// Three indexes in each other, each naming the next a thousand times.
fn index_of_indexes() -> Vec<u8> {
    let mut blobs = vec![blob(&json!({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}))];
    for _ in 0..2 {
        blobs.push(blob(&named(&blobs[blobs.len() - 1], 1000)));
    }
    let top = named(&blobs[blobs.len() - 1], 1000);
    blobs.push(("index.json".to_owned(), top.to_string().into_bytes()));
    archive(&blobs)
}

fn saved(manifest: &Value) -> Vec<u8> {
    archive(&[("manifest.json".to_owned(), manifest.to_string().into_bytes()), ("c".to_owned(), b"{}".to_vec())])
}

fn deb(name: &str, member: &[u8]) -> Vec<u8> {
    let mut deb = b"!<arch>\n".to_vec();
    for (name, bytes) in [("debian-binary", b"2.0\n".as_slice()), (name, member)] {
        deb.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, bytes.len()).bytes());
        deb.extend(bytes);
        deb.extend(std::iter::repeat_n(b'\n', bytes.len() % 2));
    }
    deb
}

/// An xz stream whose dictionary is 256 MiB.
fn large_dictionary() -> Vec<u8> {
    let mut options = liblzma::stream::LzmaOptions::new_preset(0).expect("a preset");
    options.dict_size(256 << 20);
    let mut filters = liblzma::stream::Filters::new();
    filters.lzma2(&options);
    let stream =
        liblzma::stream::Stream::new_stream_encoder(&filters, liblzma::stream::Check::None).expect("an encoder");
    let mut xz = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    xz.write_all(&archive(&[("control".to_owned(), b"Package: a\n".to_vec())])).expect("written");
    xz.finish().expect("xz")
}

#[rstest]
#[case::gnu_long_name("container_images", "a.tar", packed(&head(b'L', "x", 300 * MIB), 300), "at most 65536 fit")]
#[case::gnu_long_link("container_images", "a.tar", packed(&head(b'K', "x", 300 * MIB), 300), "at most 65536 fit")]
#[case::pax("container_images", "a.tar", packed(&head(b'x', "x", 300 * MIB), 300), "at most 65536 fit")]
#[case::large_manifest("container_images", "a.tar", packed(&head(b'0', "index.json", 64 * MIB), 65), "more than any manifest")]
#[case::many_members("container_images", "a.tar", packed(&head(b'0', "x", 0).repeat(100_001), 1), "100000 members")]
#[case::indexes("container_images", "a.tar", index_of_indexes(), "more than 1000 images and indexes")]
#[case::names("container_images", "a.tar", saved(&json!([{"Config": "c", "RepoTags": vec!["a:1"; 100_000], "Layers": []}])), "more than 1000 names")]
#[case::long_name("container_images", "a.tar", saved(&json!([{"Config": "c", "RepoTags": ["a".repeat(MIB)], "Layers": []}])), "at most 1024 fit")]
#[case::layers("container_images", "a.tar", saved(&json!([{"Config": "c", "Layers": vec!["c"; 100_000]}])), "more than 500 layers")]
#[case::depth("container_images", "a.tar", archive(&[("manifest.json".to_owned(), [b"[{\"x\":".to_vec(), vec![b'['; MIB]].concat())]), "is not JSON of the right shape")]
#[case::cut_gzip("container_images", "a.tar", packed(b"x", 1)[..500].to_vec(), "")]
#[case::deb_long_name("binary_images", "a.deb", deb("control.tar.gz", &packed(&head(b'L', "x", 300 * MIB), 300)), "at most 65536 fit")]
#[case::deb_large_control("binary_images", "a.deb", deb("control.tar.gz", &packed(&head(b'0', "control", 60 * MIB), 61)), "larger than 256 KiB")]
#[case::deb_endless("binary_images", "a.deb", deb("control.tar.gz", &packed(&head(b'0', "other", 300 * MIB), 300)), "64 MiB or more")]
#[case::deb_dictionary("binary_images", "a.deb", deb("control.tar.xz", &large_dictionary()), "emory")]
#[case::deb_members("binary_images", "a.deb", [deb("_a", b""), deb("_b", b"")[8..].repeat(5000)].concat(), "first members")]
#[tokio::test]
async fn a_hostile_upload_is_refused_in_words_and_takes_little(
    #[case] kind: &str,
    #[case] name: &str,
    #[case] bytes: Vec<u8>,
    #[case] why: &str,
) {
    let dir = tempfile::tempdir().expect("a folder");
    fs_err::write(dir.path().join("registry"), NOWHERE).expect("written");
    let mut server = Server::start(dir.path()).await;
    let collection = format!("/v1/baremetalcluster/alpha/beta/{kind}");
    let path = format!("{collection}/{name}");
    server.announce(&collection, &metadata(name, bytes.len() as u64)).await;
    let sent = server.ask("PATCH", &path).header("Upload-Offset", 0).body(bytes).send().await.expect("an answer");
    assert_eq!(sent.status(), 204);
    let mut problem = None;
    wait_until("it is read", async || {
        problem = server.image(&path).await.problem;
        problem.is_some()
    })
    .await;
    let problem = problem.expect("told");
    assert!(problem.contains(why) && problem.len() < 1000, "{problem}");
    assert!(server.is_alive());
    assert!(server.peak_kib() < MOST_KIB, "{} KiB", server.peak_kib());
    // It is not read again: a program that is not there would be told otherwise.
    server.kill();
    let again = Server::start(dir.path()).await;
    assert_eq!(again.image(&path).await.problem, Some(problem));
    assert_eq!(again.image(&path).await.published, agent_api::bpa::Published::Failed);
}

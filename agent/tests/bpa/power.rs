//! Uploads that are cut and killed; memory while a large one streams.

use sha2::{Digest, Sha256};

use super::server::{Server, Source, dense, metadata, sparse, wait_until};

const COLLECTION: &str = "/v1/baremetalcluster/alpha/beta/os_images";
const MIB: u64 = 1 << 20;

fn digest_of(source: Source, length: u64) -> String {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 64 * 1024];
    let mut at = 0;
    while at < length {
        let size = usize::try_from((length - at).min(64 * 1024)).expect("a piece");
        source(at, &mut piece[..size]);
        hasher.update(&piece[..size]);
        at += size as u64;
    }
    hex::encode(hasher.finalize())
}

/// Ends with the digest of an upload that was cut five times and whose server was killed once.
async fn cut_and_killed(source: Source, length: u64) -> u64 {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path()).await;
    let path = format!("{COLLECTION}/image.raw");
    server.announce(COLLECTION, &metadata("image.raw", length)).await;
    let mut last = 0;
    for cut in 1..=5 {
        // In the middle of a piece of whatever size.
        let at = length * cut / 7 + 12_345;
        assert!(server.send(&path, source, length, at).await.is_err(), "cut {cut}");
        wait_until("what came is safe", async || server.image(&path).await.image_offset > last).await;
        last = server.image(&path).await.image_offset;
    }
    // Killed while bytes come in.
    let sending = server.send(&path, source, length, length * 6 / 7);
    let mut killer =
        tokio::time::interval(std::time::Duration::from_millis(if length > 1024 * MIB { 2000 } else { 150 }));
    killer.tick().await;
    tokio::select! {
        _ = sending => {}
        _ = killer.tick() => {}
    }
    let safe = server.image(&path).await.image_offset;
    let before = server.peak_kib();
    server.kill();
    server = Server::start(dir.path()).await;
    let offset = server.image(&path).await.image_offset;
    assert!(offset >= safe && safe >= last, "{offset} after the kill, {safe} acknowledged before");
    let answer = server.send(&path, source, length, length).await.expect("an answer");
    assert_eq!(answer.status(), 204);
    assert_eq!(answer.headers()["upload-offset"], length.to_string());
    let image = server.image(&path).await;
    assert_eq!(image.sha256, Some(digest_of(source, length)));
    assert!(image.upload_complete && image.image_offset == length);
    before.max(server.peak_kib())
}

#[tokio::test]
async fn an_upload_that_is_cut_five_times_and_killed_comes_out_right() {
    cut_and_killed(dense, 150 * MIB + 4321).await;
}

#[tokio::test]
async fn memory_stays_flat_while_an_image_streams() {
    let peak = cut_and_killed(sparse, 256 * MIB).await;
    assert!(peak < 64 * 1024, "{peak} KiB");
}

/// `FOOTHOLD_UPLOAD_GIB=4 cargo test -p foothold-agent --test bpa -- --ignored --nocapture a_large_image`
#[tokio::test]
#[ignore = "writes a sixteenth of 20 GiB and takes minutes"]
#[expect(clippy::print_stderr, reason = "the figures are what it is for")]
async fn a_large_image_streams_through_little_memory() {
    let gib: u64 = std::env::var("FOOTHOLD_UPLOAD_GIB").map_or(20, |gib| gib.parse().expect("a number"));
    let begun = std::time::Instant::now();
    let peak = cut_and_killed(sparse, gib * 1024 * MIB).await;
    let secs = begun.elapsed().as_secs();
    eprintln!("{gib} GiB, cut five times, killed once: peak {peak} KiB, {secs} s");
    assert!(peak < 64 * 1024, "{peak} KiB");
}

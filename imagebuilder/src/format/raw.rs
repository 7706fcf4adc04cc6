//! Raw disk images: the disk's bytes, holes left out.

use std::io;
use std::os::unix::fs::FileExt;

use fs_err::File;
use sha2::{Digest, Sha256};

use crate::disk::extents::Extents;

/// Bytes read, hashed and written at a time.
const CHUNK: u64 = 4 << 20;
/// Zeros hashed at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes `image` to the empty `file` and returns the hex sha256 of all its bytes.
pub fn write(image: &Extents, file: &mut File, progress: &mut dyn FnMut(u64, u64)) -> io::Result<String> {
    file.set_len(image.size())?;
    let total = image.data_bytes();
    let mut reader = image.reader();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; usize::try_from(CHUNK).expect("a small chunk")];
    let (mut at, mut done) = (0, 0);
    while at < image.size() {
        let next = image.next_data(at).unwrap_or(image.size()) / CHUNK * CHUNK;
        if next > at {
            hash_zeros(&mut hash, next - at);
            at = next;
        }
        let len = usize::try_from(CHUNK.min(image.size() - at)).expect("a small chunk");
        let chunk = &mut buffer[..len];
        if reader.read_at(at, chunk)? {
            let (written, ()) = rayon::join(|| write_data(file, at, chunk), || hash.update(&*chunk));
            done += written?;
        } else {
            hash.update(&*chunk);
        }
        at += len as u64;
        progress(done.min(total), total);
    }
    progress(total, total);
    Ok(hex::encode(hash.finalize()))
}

fn hash_zeros(hash: &mut Sha256, mut count: u64) {
    while count > 0 {
        let len = usize::try_from(count.min(ZEROS.len() as u64)).expect("a small buffer");
        hash.update(&ZEROS[..len]);
        count -= len as u64;
    }
}

/// Writes `chunk` but for its blocks of zeros; returns the bytes written.
fn write_data(file: &File, at: u64, chunk: &[u8]) -> io::Result<u64> {
    let mut written = 0;
    let mut start = 0;
    for block in chunk.chunks(ZEROS.len()) {
        if block != &ZEROS[..block.len()] {
            file.file().write_all_at(block, at + start)?;
            written += block.len() as u64;
        }
        start += block.len() as u64;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use sha2::{Digest as _, Sha256};

    use super::write;
    use crate::disk::Content;
    use crate::disk::extents::Extents;

    #[test]
    fn holes_stay_holes_and_the_digest_is_that_of_the_whole_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("image");
        let mut image = Extents::new((64 << 20) + 512);
        image.push(100, &Content::Bytes(b"first".to_vec())).expect("a piece");
        image.push(5 << 20, &Content::Bytes(vec![0; 1 << 20])).expect("zeros");
        image.push(40 << 20, &Content::Bytes(vec![7; 1 << 20])).expect("a piece");
        let mut file = fs_err::File::create(&path).expect("a file");
        let mut last = (0, 0);
        let digest = write(&image, &mut file, &mut |done, total| last = (done, total)).expect("writes");
        let bytes = fs_err::read(&path).expect("reads");
        assert_eq!(bytes.len(), (64 << 20) + 512);
        assert_eq!(&bytes[100..105], b"first");
        assert_eq!(digest, hex::encode(Sha256::digest(&bytes)));
        assert_eq!(last, (image.data_bytes(), image.data_bytes()));
        assert!(file.metadata().expect("metadata").blocks() * 512 < 2 << 20, "zeros were written");
    }
}

//! SHA-256 of bytes on their way: one adaptor for whoever reads or writes and wants to know the digest, too.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use crate::release::{Blob, Digest};

/// Bytes read at a time by [`blob`].
const PIECE: usize = 256 << 10;

/// Hashes what is read or written through it.
#[derive(Debug, Default)]
pub struct Hashed<T> {
    inner: T,
    hash: Sha256,
    size: u64,
}

impl<T> Hashed<T> {
    /// Around a reader or a writer, with nothing hashed yet.
    pub fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    /// Digest and number of the bytes that passed.
    pub fn finish(self) -> Blob {
        Blob { digest: Digest::from_sha256(self.hash.finalize().into()), size: self.size }
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.passed(&into[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.passed(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Digest and number of all bytes that a reader gives.
pub fn blob(mut reader: impl Read) -> io::Result<Blob> {
    let mut hashed = Hashed::new(io::sink());
    let mut piece = vec![0; PIECE];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(hashed.finish()),
            Ok(count) => hashed.passed(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};

    use super::{Digest, Hashed, blob};

    #[test]
    fn what_passes_is_hashed_whoever_moves_it() {
        let bytes: Vec<u8> = (0..600_000_u32).flat_map(u32::to_le_bytes).collect();
        let (mut reader, mut writer) = (Hashed::new(&*bytes), Hashed::new(io::sink()));
        io::copy(&mut reader, &mut writer).expect("copied");
        let read = reader.finish();
        assert_eq!((&read.digest, read.size), (&Digest::of(&bytes), 2_400_000));
        assert_eq!(writer.finish(), read);
        assert_eq!(blob(&*bytes).expect("read"), read);
    }

    #[test]
    fn a_part_is_hashed_as_far_as_it_was_moved() {
        let mut reader = Hashed::new(&b"abcdef"[..]);
        reader.read_exact(&mut [0; 3]).expect("three bytes");
        let mut room = [0; 3];
        let mut writer = Hashed::new(&mut room[..]);
        assert_eq!(writer.write(b"abcdef").expect("three fit"), 3);
        // FIPS 180-2, appendix B.1.
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!([reader.finish(), writer.finish()].map(|blob| blob.digest.to_string()), [known, known]);
    }
}

//! One file out of an initrd, read no further than needed: archives (newc cpio in zstd), one after the other, zeros
//! between them (kernel documentation, driver-api/early-userspace/buffer-format).

use std::io::{self, BufRead, BufReader, Read};

/// Where the initrd carries the key with which the box checks its release.
pub const PUBLIC_KEY: &str = "etc/foothold/release.pub";
/// Bytes of a newc header: the magic and 13 fields of 8 hex digits.
const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";
const TRAILER: &str = "TRAILER!!!";
/// Bytes of the initrd read at a time.
const BUFFER: usize = 64 << 10;
/// No name or small file is larger; what is skipped may be.
const SMALL: u64 = 1 << 20;

/// The bytes of the file `wanted`; `None` when the initrd ends without it.
pub fn file_in(initrd: impl Read, wanted: &str) -> io::Result<Option<Vec<u8>>> {
    let mut initrd = BufReader::with_capacity(BUFFER, initrd);
    while skip_zeros(&mut initrd)? {
        let mut archive = zstd::Decoder::with_buffer(&mut initrd)?.single_frame();
        if let Some(file) = file_in_archive(&mut archive, wanted)? {
            return Ok(Some(file));
        }
        // Where the frame ends the next archive begins.
        io::copy(&mut archive, &mut io::sink())?;
    }
    Ok(None)
}

/// Goes to the next byte that is not zero; false when there is none.
fn skip_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = from.fill_buf()?;
        let (length, zeros) = (buffer.len(), buffer.iter().take_while(|byte| **byte == 0).count());
        from.consume(zeros);
        if zeros < length || length == 0 {
            return Ok(length > 0);
        }
    }
}

fn file_in_archive(cpio: &mut impl Read, wanted: &str) -> io::Result<Option<Vec<u8>>> {
    loop {
        let mut header = [0; HEADER];
        cpio.read_exact(&mut header)?;
        if !header.starts_with(MAGIC) {
            return Err(io::Error::other("the initrd is no newc archive"));
        }
        let (size, name_size) = (field(&header, 6)?, field(&header, 11)?);
        let name = take(cpio, name_size, HEADER as u64 + name_size)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(&name)).into_owned();
        if name == wanted {
            return take(cpio, size, size).map(Some);
        }
        if name == TRAILER {
            return Ok(None);
        }
        io::copy(&mut cpio.by_ref().take(size.next_multiple_of(4)), &mut io::sink())?;
    }
}

/// Reads `size` bytes, and the padding that follows when `so_far` bytes are not a multiple of four.
fn take(from: &mut impl Read, size: u64, so_far: u64) -> io::Result<Vec<u8>> {
    if size > SMALL {
        return Err(io::Error::other("the initrd's archive is damaged"));
    }
    let mut bytes = Vec::new();
    from.take(so_far.next_multiple_of(4) - so_far + size).read_to_end(&mut bytes)?;
    bytes.truncate(usize::try_from(size).map_err(io::Error::other)?);
    Ok(bytes)
}

fn field(header: &[u8; HEADER], number: usize) -> io::Result<u64> {
    let start = MAGIC.len() + number * 8;
    let text = std::str::from_utf8(&header[start..start + 8]).map_err(io::Error::other)?;
    u64::from_str_radix(text, 16).map_err(io::Error::other)
}

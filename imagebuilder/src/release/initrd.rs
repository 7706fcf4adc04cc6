//! The initrd: a newc cpio (kernel documentation, driver-api/early-userspace/buffer-format) of the agent and the
//! modules that may be needed to find the medium, compressed with zstd.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use agent_api::release::InitrdConfig;
use anyhow::{Context, Result};

use crate::store::{Cache, Made, StageKey, hash};

/// zstd level of the modules, which seldom change. Unpacking does not get slower with it.
const MODULES_LEVEL: i32 = 19;
/// zstd level of the agent, which a developer changes all the time.
const AGENT_LEVEL: i32 = 9;
/// Magic of a newc header.
const MAGIC: &str = "070701";
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Writes newc entries. Inode numbers count up; owner is root, times are 0.
struct Cpio<W> {
    out: W,
    inode: u32,
    written: usize,
}

impl<W: Write> Cpio<W> {
    fn new(out: W) -> Self {
        Self { out, inode: 0, written: 0 }
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.inode += 1;
        let size = u32::try_from(bytes.len()).with_context(|| format!("`{name}` is too large for an initrd"))?;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, u32::try_from(name.len() + 1)?, 0];
        let mut header = MAGIC.to_owned();
        for field in fields {
            let _ = write!(header, "{field:08x}");
        }
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(bytes)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len();
        Ok(self.out.write_all(bytes)?)
    }

    fn pad(&mut self) -> Result<()> {
        let zeros = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 3][..zeros])
    }

    fn finish(mut self) -> Result<W> {
        self.inode = 0;
        self.entry(TRAILER, 0, &[])?;
        Ok(self.out)
    }
}

/// What the initrd is made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The agent, which is `/init`.
    pub agent: &'a Made,
    /// The `os` stage, which has the modules.
    pub os: &'a Made,
    /// Text of the minisign public key.
    pub public_key: &'a str,
    /// What must be known before a release is found.
    pub config: InitrdConfig,
}

/// Makes the initrd or takes it from the cache, as the file `initrd`.
///
/// Two archives one after the other, which the kernel unpacks in turn: the agent, packed fast each time it changes, and
/// the modules, packed hard and once. The kernel stops at the first damage and starts what it has: with the agent in
/// front there is somebody to say that the rest is not whole.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let config = serde_json::to_vec(&input.config)?;
    let agent = input.agent.file("foothold-agent")?;
    let modules = modules(input)?;
    let modules = modules.file("modules")?;
    let key = StageKey::new("initrd", 6)
        .with("agent", &agent.digest)
        .with("modules", &modules.digest)
        .with("key", hash::bytes(input.public_key.as_bytes()))
        .with("config", hash::bytes(&config));
    input.cache.stage(&key, &mut || (), |work| {
        let path = work.path().join("initrd");
        let mut cpio = Cpio::new(encoder(fs_err::File::create(&path)?, AGENT_LEVEL)?);
        cpio.entry("init", PROGRAM, &fs_err::read(input.cache.blob_path(&agent.digest))?)?;
        cpio.entry("etc", DIRECTORY, &[])?;
        cpio.entry("etc/foothold", DIRECTORY, &[])?;
        cpio.entry("etc/foothold/release.pub", FILE, input.public_key.as_bytes())?;
        cpio.entry("etc/foothold/initrd.json", FILE, &config)?;
        let mut file = cpio.finish()?.finish()?;
        pad(&mut file)?;
        io::copy(&mut fs_err::File::open(input.cache.blob_path(&modules.digest))?, &mut file)?;
        let mut made = Made::default();
        made.files.insert("initrd".into(), input.cache.adopt(&path)?);
        Ok(made)
    })
}

/// An archive begins at a multiple of four bytes.
fn pad(file: &mut fs_err::File) -> Result<()> {
    let length = usize::try_from(file.metadata()?.len())?;
    Ok(file.write_all(&[0; 3][..length.next_multiple_of(4) - length])?)
}

/// The second archive: folders and modules.
fn modules(input: &Input<'_>) -> Result<Made> {
    let modules = input.os.file(crate::layer::os::INITRD_MODULES)?;
    let key = StageKey::new("initrd-modules", 3).with("modules", &modules.digest);
    let made = input.cache.stage(&key, &mut || (), |work| {
        let path = work.path().join("modules");
        let mut cpio = Cpio::new(encoder(fs_err::File::create(&path)?, MODULES_LEVEL)?);
        for folder in ["dev", "proc", "sys", "run", "sysroot", "usr", "tmp"] {
            cpio.entry(folder, DIRECTORY, &[])?;
        }
        cpio.entry("lib", LINK, b"usr/lib")?;
        add_tar(&mut cpio, &fs_err::read(input.cache.blob_path(&modules.digest))?)?;
        cpio.finish()?.finish()?;
        let mut made = Made::default();
        made.files.insert("modules".into(), input.cache.adopt(&path)?);
        Ok(made)
    })?;
    Ok(made.0)
}

fn encoder(file: fs_err::File, level: i32) -> Result<zstd::Encoder<'static, fs_err::File>> {
    let mut encoder = zstd::Encoder::new(file, level)?;
    // The number of workers does not change the bytes, but zero would.
    encoder.multithread(2)?;
    // The kernel goes on to /init after a damaged archive: with a checksum it at least says so.
    encoder.include_checksum(true)?;
    Ok(encoder)
}

fn add_tar<W: Write>(cpio: &mut Cpio<W>, tar: &[u8]) -> Result<()> {
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().trim_end_matches('/').to_owned();
        if entry.header().entry_type().is_dir() {
            if name != "usr" {
                cpio.entry(&name, DIRECTORY, &[])?;
            }
        } else {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            cpio.entry(&name, FILE, &bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Cpio, DIRECTORY, FILE};

    #[test]
    fn entries_are_padded_and_the_archive_ends_with_the_trailer() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.entry("a", DIRECTORY, &[]).expect("written");
        cpio.entry("a/file", FILE, b"abcde").expect("written");
        let bytes = cpio.finish().expect("written");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"07070100000001000041ed"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("a/file\0\0\0\0abcde"), "{text:?}");
        assert!(text.contains("TRAILER!!!\0"));
    }
}

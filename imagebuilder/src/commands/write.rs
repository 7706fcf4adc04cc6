//! `foothold write`: an image onto a device, read back and compared.
//!
//! ```text
//! judge   may this device be overwritten, and is the image whole? pure, on the facts of `host::block`
//! fit     a disk with larger blocks gets a table and volumes that count in them (`medium::sectors`)
//! copy    everything after the first piece, then the first piece: half an image never looks whole
//! compare past the cache, piece by piece, so that the first wrong place can be named
//! ```

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use memmap2::MmapMut;
use sha2::{Digest as _, Sha256};

use crate::cli::Write;
use crate::disk;
use crate::error::WrongUsage;
use crate::host::block::{self, Block, Target, Use};
use crate::host::files::is_same;
use crate::medium::Medium;
use crate::medium::sectors::{self, LARGE, Patch};
use crate::report::{CommandError, Outcome, Report, Step, shell_word};

/// Bytes that are copied and compared at once: a multiple of every sector size.
const PIECE: usize = 4 << 20;
/// Where a backup GPT of an earlier system would be, at the end of the device.
const OLD_GPT: u64 = 1 << 20;
/// What cannot be read past the cache has to be a multiple of this.
const SECTOR: usize = 4096;
/// How files begin that gzip, zstd, xz, bzip2, lz4 and zip have packed.
const COMPRESSED: [&[u8]; 6] =
    [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"\x04\x22\x4d\x18", b"PK\x03\x04"];
/// Bytes of a logical block of most disks.
const SMALL: u64 = disk::gpt::SECTOR;

/// A device that returns other bytes than were written.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{device}` returns other bytes than were written, first between byte {from} and {to}\nhint: the device is worn out, or has less space than it claims: use another one"
)]
struct Differs {
    device: String,
    from: u64,
    to: u64,
}

/// Writes the image, reads it back and compares.
pub fn run(args: &Write, report: &Report) -> Result<Outcome, CommandError> {
    let mut image = Source::open(&args.image)?;
    let bytes = image.bytes;
    if is_same(&args.image, &args.device) {
        let message = format!("`{}` is the image itself", args.device.display());
        return Err(WrongUsage { message, hint: "name another file or device to write to".to_owned() }.into());
    }
    let target = block::probe(&args.device).with_context(|| format!("looking at `{}`", args.device.display()))?;
    judge(&target, image.kind, bytes, args.file).map_err(|refusal| refusal.into_error(&args.device))?;
    let scratch = tempfile::tempdir()?;
    if let Target::Block(block) = &target
        && block.sector == LARGE
    {
        let step = report.step("write", "fit");
        image.patches = sectors::patches(&args.image, scratch.path())
            .with_context(|| format!("making `{}` fit for blocks of {LARGE} bytes", args.image.display()))?;
        step.done();
    }
    let whole = matches!(target, Target::Block(_));
    let device = open_device(&args.device, whole).with_context(|| format!("opening `{}`", args.device.display()))?;

    let step = report.step("write", "copy");
    let written = copy(&image, &device, bytes, whole, report, &step);
    let written =
        written.with_context(|| format!("writing `{}`, which holds no complete image now", args.device.display()))?;
    step.done_with(crate::report::details([("bytes", bytes.into())]));

    let step = report.step("write", "compare");
    compare(&args.device, bytes, &written, report, &step)?;
    step.done_with(crate::report::details([("bytes", bytes.into())]));
    let sha256 = hex::encode(written.whole);
    Ok(Outcome::Written { device: args.device.clone(), bytes, sha256, secs: report.secs() })
}

/// An image that can be written.
struct Source {
    file: fs_err::File,
    bytes: u64,
    kind: Kind,
    /// What takes the place of its bytes, in the order of the places.
    patches: Vec<Patch>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, CommandError> {
        let mut file = fs_err::File::open(path).map_err(|error| {
            let message = format!("the image cannot be read: {error}");
            CommandError::from(WrongUsage { message, hint: "`foothold build` makes images".to_owned() })
        })?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut head = Vec::new();
        file.rewind()?;
        io::Read::by_ref(&mut file).take(40 << 10).read_to_end(&mut head)?;
        let kind = kind(&head);
        let wrong = match kind {
            Kind::Raw | Kind::Iso => {
                whole(path)?;
                return Ok(Self { file, bytes, kind, patches: Vec::new() });
            }
            Kind::Qcow2 => {
                ("a qcow2, which only virtual machines read", "build one with `--format raw` or `--format iso`")
            }
            Kind::Compressed => ("compressed", "decompress it first"),
            Kind::Unknown => ("neither a disk image nor an ISO", "`foothold build` makes images"),
        };
        let message = format!("`{}` is {}", path.display(), wrong.0);
        Err(WrongUsage { message, hint: wrong.1.to_owned() }.into())
    }

    /// Fills `buffer` from byte `at` on.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.file().read_exact_at(buffer, at)?;
        let end = at + buffer.len() as u64;
        for patch in &self.patches {
            let (from, to) = (patch.at.max(at), (patch.at + patch.bytes.size()).min(end));
            if from < to {
                let place = |byte: u64| usize::try_from(byte - at).map_err(io::Error::other);
                patch.bytes.read_at(from - patch.at, &mut buffer[place(from)?..place(to)?])?;
            }
        }
        Ok(())
    }
}

/// Refuses an image of which the end is missing, or whose partition table is damaged.
fn whole(path: &Path) -> Result<(), CommandError> {
    let refuse = |found: String| {
        let hint = "fetch or copy it again, and compare: `foothold verify` reads every byte of it".to_owned();
        Err(WrongUsage { message: format!("`{}` {found}", path.display()), hint }.into())
    };
    let medium = Medium::open(path).map_err(anyhow::Error::from)?;
    match (medium.cut_off, medium.table_flaw) {
        (Some((whole, who)), _) => refuse(format!("is cut off: it has {} bytes, {who} says {whole}", medium.bytes)),
        (None, Some(flaw)) => refuse(format!("is damaged: {flaw}")),
        (None, None) => Ok(()),
    }
}

/// What a file holds, by its first 40 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Iso,
    Qcow2,
    Compressed,
    Unknown,
}

fn kind(head: &[u8]) -> Kind {
    let has = |at: usize, magic: &[u8]| head.get(at..at + magic.len()) == Some(magic);
    // ECMA-119 8.1: the first volume descriptor is at sector 16.
    if has(32769, b"CD001") {
        Kind::Iso
    } else if has(512, b"EFI PART") {
        Kind::Raw
    } else if has(0, b"QFI\xfb") {
        Kind::Qcow2
    } else if COMPRESSED.iter().copied().any(|magic| has(0, magic)) {
        Kind::Compressed
    } else {
        Kind::Unknown
    }
}

/// Why a device is not written.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    found: String,
    hint: String,
}

impl Refusal {
    fn into_error(self, device: &Path) -> WrongUsage {
        WrongUsage { message: format!("`{}` {}", device.display(), self.found), hint: self.hint }
    }
}

/// Whether an image of that kind and size may be written to `target`.
fn judge(target: &Target, kind: Kind, bytes: u64, file_allowed: bool) -> Result<(), Refusal> {
    let refuse = |found: String, hint: &str| Err(Refusal { found, hint: hint.to_owned() });
    match target {
        Target::Absent | Target::File if file_allowed => Ok(()),
        Target::Absent => refuse("is not there".to_owned(), "`lsblk` lists the disks; `--file` makes a file"),
        Target::File => {
            refuse("is a file, not a device".to_owned(), "give a whole disk such as `/dev/sdb`, or `--file`")
        }
        Target::Other => refuse("is not a block device".to_owned(), "give a whole disk such as `/dev/sdb`"),
        Target::Block(block) => judge_block(block, kind, bytes),
    }
}

fn judge_block(block: &Block, kind: Kind, bytes: u64) -> Result<(), Refusal> {
    let refuse = |found: String, hint: String| Err(Refusal { found, hint });
    if let Some(disk) = &block.partition_of {
        let hint = format!("an image has partitions of its own: give the whole disk, `/dev/{disk}`");
        return refuse(format!("is a partition of `{disk}`"), hint);
    }
    let system =
        |point: &Path| ["/", "/usr", "/boot", "/boot/efi", "/var", "/home"].iter().any(|own| point == Path::new(own));
    if let Some(Use::Mount(device, point)) =
        block.uses.iter().find(|one| matches!(one, Use::Mount(_, point) if system(point)))
    {
        let found = format!("holds the running system: `{device}` is mounted on `{}`", point.display());
        return refuse(found, "choose another disk; `lsblk` lists them".to_owned());
    }
    match block.uses.first() {
        Some(Use::Mount(device, point)) => {
            return refuse(
                format!("is in use: `{device}` is mounted on `{}`", point.display()),
                format!("if its content may be lost: `umount {}`", shell_word(point)),
            );
        }
        Some(Use::Swap(device)) => {
            return refuse(
                format!("is in use: `{device}` is swap space"),
                format!("if that may end: `swapoff /dev/{device}`"),
            );
        }
        Some(Use::Holder(device, holder)) => {
            let hint = format!(
                "it belongs to LVM, RAID or encryption: take `{holder}` apart first, if its content may be lost"
            );
            return refuse(format!("is in use: `{device}` is part of `{holder}`"), hint);
        }
        None => {}
    }
    if block.read_only {
        return refuse("is read-only".to_owned(), "is there a switch on it?".to_owned());
    }
    match (block.sector, kind) {
        (SMALL, _) | (LARGE, Kind::Raw) => {}
        (LARGE, _) => {
            let found =
                format!("has blocks of {LARGE} bytes, and machines start an ISO from blocks of {SMALL} bytes only");
            return refuse(found, "build one with `--format raw`: that is written as this disk needs it".to_owned());
        }
        (other, _) => {
            let found = format!("has blocks of {other} bytes, {SMALL} or {LARGE} were expected");
            return refuse(found, "use another disk".to_owned());
        }
    }
    if block.size < bytes {
        let hint = format!("{} more bytes are needed: use a larger one", bytes - block.size);
        return refuse(format!("has {} bytes, the image has {bytes}", block.size), hint);
    }
    Ok(())
}

/// Opens for writing; a device exclusively, so that the kernel too refuses when somebody uses it.
fn open_device(path: &Path, whole: bool) -> io::Result<File> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true);
    if whole {
        use fs_err::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_EXCL | libc::O_CLOEXEC);
    } else {
        options.create(true).truncate(true);
    }
    Ok(options.open(path)?.into_parts().0)
}

/// What was written: the hash of everything and of each piece.
struct Written {
    whole: [u8; 32],
    pieces: Vec<[u8; 32]>,
}

fn copy(
    image: &Source,
    device: &File,
    bytes: u64,
    whole: bool,
    report: &Report,
    step: &Step,
) -> anyhow::Result<Written> {
    if whole {
        wipe_end(device, bytes).context("wiping the end of the device")?;
    }
    let mut hasher = Sha256::new();
    let mut pieces = Vec::new();
    let mut first = vec![0; PIECE];
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < bytes {
        report.cancel().check()?;
        let buffer = if offset == 0 { &mut first } else { &mut piece };
        let length = usize::try_from(bytes - offset).unwrap_or(PIECE).min(PIECE);
        buffer.truncate(length);
        image.read_at(offset, buffer).context("reading the image")?;
        hasher.update(&*buffer);
        pieces.push(Sha256::digest(&*buffer).into());
        if offset > 0 {
            device.write_all_at(buffer, offset)?;
        }
        offset += length as u64;
        step.bytes(offset, Some(bytes));
        if offset.is_multiple_of(64 << 20) {
            // Without it the whole image would wait in memory and progress would be a lie.
            device.sync_data()?;
        }
    }
    step.waiting("the device", "it takes what is still in memory");
    device.sync_all()?;
    device.write_all_at(&first, 0)?;
    device.sync_all()?;
    Ok(Written { whole: hasher.finalize().into(), pieces })
}

/// An old backup GPT at the end of the disk would contradict the new one.
fn wipe_end(mut device: &File, bytes: u64) -> io::Result<()> {
    let size = device.seek(SeekFrom::End(0))?;
    let start = size.saturating_sub(OLD_GPT).max(bytes);
    device.seek(SeekFrom::Start(start))?;
    let zeros = vec![0; usize::try_from(size - start).unwrap_or(0)];
    device.write_all(&zeros)
}

fn compare(path: &Path, bytes: u64, written: &Written, report: &Report, step: &Step) -> anyhow::Result<()> {
    let device = open_past_cache(path).with_context(|| format!("opening `{}` to read it back", path.display()))?;
    // Reading past the cache needs an aligned buffer, which pages are.
    let mut buffer = MmapMut::map_anon(PIECE).context("allocating a buffer")?;
    let mut offset = 0;
    for expected in &written.pieces {
        report.cancel().check()?;
        let length = usize::try_from(bytes - offset).unwrap_or(PIECE).min(PIECE);
        let got = read_at(&device, &mut buffer[..length.next_multiple_of(SECTOR)], offset)
            .with_context(|| format!("reading `{}` back at byte {offset}", path.display()))?;
        let same = got >= length && <[u8; 32]>::from(Sha256::digest(&buffer[..length])) == *expected;
        if !same {
            let device = path.display().to_string();
            return Err(Differs { device, from: offset, to: offset + length as u64 }.into());
        }
        offset += length as u64;
        step.bytes(offset, Some(bytes));
    }
    Ok(())
}

/// Opens for reading what is on the device, not what the cache remembers of it.
fn open_past_cache(path: &Path) -> io::Result<File> {
    let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC).open(path);
    if let Ok(file) = direct {
        return Ok(file);
    }
    let file = fs_err::File::open(path)?.into_parts().0;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(file)
}

/// Fills the buffer as far as the device goes.
fn read_at(device: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match device.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The end of a file that is no multiple of a sector.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && filled % SECTOR != 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;

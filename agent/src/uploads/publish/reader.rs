//! Reads what was uploaded in a process of its own: nobody, 256 MiB, one open file. What it finds comes back as one record
//! (RFC 7464, "JSON text sequences").
//!
//! ```text
//! Reader::images ─► foothold-agent read-upload images FD MOST <archive ─► Found ─► push
//! Reader::control ─► foothold-agent read-upload control <package       ─► Found ─► apt repository
//! ```

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use clap::{Parser, Subcommand};
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::{Deserialize, Serialize};

use super::archive::{Archive, Image};
use super::layout::{ArchiveError, Layout, unpack};
use super::{deb, layout};
use crate::host::RunError;
use crate::host::confined::{Confined, give_up_rights};

/// Most memory of the process.
const MEMORY: u64 = 256 << 20;
/// Most time, and for how many bytes a second more: also a slow machine unpacks and hashes faster.
const TIME: Duration = Duration::from_secs(120);
const BYTES_A_SECOND: u64 = 1 << 20;
/// Before and behind a record (RFC 7464, section 2.2).
const BEFORE: u8 = 0x1E;
const BEHIND: u8 = b'\n';

/// How to start the process.
#[derive(Clone, Debug)]
pub struct Reader {
    argv: Vec<String>,
}

/// Why something was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It will be the same later.
    Never(String),
    /// It may be otherwise later.
    Later(String),
}

/// Read one upload on standard input, and tell what it is.
#[derive(Debug, Parser)]
pub struct ReadUpload {
    #[command(subcommand)]
    wanted: Wanted,
}

#[derive(Debug, Subcommand)]
enum Wanted {
    /// The images of an archive.
    Images {
        /// Number of the open file into which it is unpacked, if it is compressed.
        into: u32,
        /// Most bytes of it then.
        most: u64,
    },
    /// The control file of a Debian package.
    Control,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
enum Found {
    Images { unpacked: bool, images: Vec<Image> },
    Control(deb::Control),
    Refused(String),
    Unreadable(String),
}

impl Reader {
    /// This program again.
    pub fn of_box() -> Self {
        Self::new(vec!["/proc/self/exe".to_owned(), "read-upload".to_owned()])
    }

    /// A program that hands the arguments behind these to [`ReadUpload`].
    pub fn new(argv: Vec<String>) -> Self {
        Self { argv }
    }

    /// The images of the archive at `path`. A compressed one is unpacked into a file without a name beside it, of less than
    /// `most` bytes. Blocks.
    pub(super) fn images(&self, path: &Path, most: u64) -> Result<(Archive, Vec<Image>), Unread> {
        let file = open(path)?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        let into = fs_err::OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir);
        let into = into.map_err(later)?.into_file();
        let number = std::os::fd::AsRawFd::as_raw_fd(&into).to_string();
        let found = self.read(&file, Some(&into), most, &["images", &number, &most.to_string()])?;
        match found {
            Found::Images { unpacked, images } => Ok((Archive::new(if unpacked { into } else { file }), images)),
            other => Err(other.unread()),
        }
    }

    /// The control file of the package at `path`. Blocks.
    pub(super) fn control(&self, path: &Path) -> Result<deb::Control, Unread> {
        match self.read(&open(path)?, None, 0, &["control"])? {
            Found::Control(control) => Ok(control),
            other => Err(other.unread()),
        }
    }

    fn read(&self, file: &File, shared: Option<&File>, most: u64, words: &[&str]) -> Result<Found, Unread> {
        let argv = self.argv.iter().map(String::as_str).chain(words.iter().copied()).map(str::to_owned).collect();
        let bytes = file.metadata().map_err(later)?.len();
        let deadline = TIME + Duration::from_secs(bytes / BYTES_A_SECOND);
        let input = file.try_clone().map_err(later)?;
        let output = Confined { argv, input, shared, memory: MEMORY, file: most, deadline }.run().map_err(ended)?;
        let record = record(&output.stdout).ok_or_else(|| Unread::Later("its reader said nothing".to_owned()))?;
        serde_json::from_slice(record).map_err(|error| Unread::Later(format!("its reader is not understood: {error}")))
    }
}

fn open(path: &Path) -> Result<File, Unread> {
    Ok(fs_err::File::open(path).map_err(later)?.into_file())
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands it over")]
fn later(error: io::Error) -> Unread {
    Unread::Later(error.to_string())
}

/// A reader that did not come to its end: what it read is at fault, unless it was not even started.
fn ended(error: RunError) -> Unread {
    let most = MEMORY >> 20;
    match error {
        RunError::Start { source, .. } | RunError::Pipe { source, .. } => later(source),
        RunError::Deadline { after, .. } => Unread::Never(format!("it is not read within {} s", after.as_secs())),
        RunError::Failed { how, stderr, .. } => {
            let last = stderr.lines().last().unwrap_or_default();
            Unread::Never(format!("it cannot be read within {most} MiB of memory: its reader {how} ({last})"))
        }
    }
}

fn record(output: &[u8]) -> Option<&[u8]> {
    let from = output.iter().position(|byte| *byte == BEFORE)? + 1;
    let length = output[from..].iter().position(|byte| *byte == BEHIND)?;
    Some(&output[from..from + length])
}

impl Found {
    fn unread(self) -> Unread {
        match self {
            Self::Refused(why) => Unread::Never(why),
            Self::Unreadable(why) => Unread::Later(why),
            Self::Images { .. } | Self::Control(_) => Unread::Later("its reader told something else".to_owned()),
        }
    }
}

impl ReadUpload {
    /// Reads standard input, which is a file, and writes what it is to standard output.
    pub fn run(&self) -> io::Result<()> {
        let found = self.found().unwrap_or_else(|error| match error {
            // What the system tells is of the disk, all else of the bytes.
            ArchiveError::Io(error) if error.raw_os_error().is_some() => Found::Unreadable(error.to_string()),
            error => Found::Refused(error.to_string()),
        });
        let mut out = io::stdout().lock();
        out.write_all(&[BEFORE])?;
        serde_json::to_writer(&mut out, &found)?;
        out.write_all(&[BEHIND])?;
        out.flush()
    }

    fn found(&self) -> Result<Found, ArchiveError> {
        use std::os::fd::AsFd as _;
        let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        match self.wanted {
            Wanted::Images { into, most } => {
                let mut plain = fs_err::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(format!("/proc/self/fd/{into}"))?
                    .into_file();
                give_up_rights()?;
                let unpacked = unpack(&mut file, &mut plain, most)?;
                let layout = Layout::open(if unpacked { plain } else { file })?;
                Ok(Found::Images { unpacked, images: layout.images()? })
            }
            Wanted::Control => {
                give_up_rights()?;
                match deb::control(io::BufReader::new(file)) {
                    Ok(control) => Ok(Found::Control(control)),
                    Err(deb::DebError::Io(error)) => Err(layout::ArchiveError::Io(error)),
                    Err(error) => Ok(Found::Refused(error.to_string())),
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::path::Path;

    use clap::Parser;

    use super::super::deb::tests::package;
    use super::{ReadUpload, Reader, Unread};

    /// The reader of these tests: this program, asked for one "test".
    pub(in crate::uploads::publish) fn reader() -> Reader {
        let name = "uploads::publish::reader::tests::the_reader";
        let exe = std::env::current_exe().expect("this program").display().to_string();
        Reader::new([&exe, "--ignored", "--exact", "--nocapture", "--test-threads=1", name].map(str::to_owned).to_vec())
    }

    /// It returns, and does not call `exit`: that takes away the stack on which the main thread may still be handling glibc's
    /// signal for [`give_up_rights`]'s change of users.
    #[test]
    #[ignore = "it is the reader of the other tests, which start it"]
    fn the_reader() {
        let mut words = std::env::args().skip_while(|word| !word.ends_with("::the_reader")).peekable();
        if words.peek().is_some() {
            ReadUpload::parse_from(words).run().expect("told");
        }
    }

    fn gzip(write: impl FnOnce(&mut flate2::write::GzEncoder<fs_err::File>), path: &Path) {
        let file = fs_err::File::create(path).expect("a file");
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        write(&mut gz);
        gz.finish().expect("written");
    }

    fn zeros(to: &mut impl Write, mib: usize) {
        for _ in 0..mib {
            to.write_all(&vec![0; 1 << 20]).expect("written");
        }
    }

    #[test]
    fn what_is_read_comes_back_whole() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.deb");
        let text =
            format!("Package: a\nVersion: 1\nArchitecture: all\nDescription: {}\n", "\u{1e} long\u{2028}".repeat(2000));
        fs_err::write(&path, package(&text, ".xz")).expect("written");
        assert_eq!(reader().control(&path).expect("a package").text, text.trim_end());
    }

    #[test]
    fn a_name_of_many_megabytes_is_refused_in_words() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("bomb.tar.gz");
        let mib = 300;
        gzip(
            |gz| {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::GNULongName);
                header.set_size((mib as u64) << 20);
                header.set_cksum();
                gz.write_all(header.as_bytes()).expect("written");
                zeros(gz, mib);
            },
            &path,
        );
        let refused = reader().images(&path, 1 << 30).err().expect("refused");
        let Unread::Never(told) = refused else { panic!("{refused:?}") };
        assert!(told.contains("have 314572800 bytes, at most 65536 fit"), "{told}");
    }

    #[test]
    fn an_archive_that_unpacks_to_more_than_there_is_room_for_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("bomb.tar.gz");
        gzip(|gz| zeros(gz, 20), &path);
        let refused = reader().images(&path, 10 << 20).err().expect("refused");
        assert!(matches!(&refused, Unread::Never(told) if told.contains("there is no room")), "{refused:?}");
        let damaged = fs_err::read(&path).expect("read");
        fs_err::write(&path, &damaged[..damaged.len() / 2]).expect("written");
        assert!(matches!(reader().images(&path, 1 << 30).err(), Some(Unread::Never(_))), "cut off, now and later");
    }

    #[test]
    fn a_reader_that_takes_too_much_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("any");
        fs_err::write(&path, "any").expect("written");
        let script = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let greedy = Reader::new(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        let refused = greedy.control(&path).expect_err("refused");
        assert!(matches!(&refused, Unread::Never(told) if told.contains("within 256 MiB of memory")), "{refused:?}");
        let missing = Reader::new(vec!["no-such-program".to_owned()]);
        assert!(matches!(missing.control(&path), Err(Unread::Later(_))));
    }
}

//! The members of a tar archive, one after another, each within its bounds: whoever wrote the archive does not choose how
//! much memory its names take.
//!
//! ```text
//! head of 512 bytes ─┬─ member: name, link, kind, where its bytes lie
//!                    ├─ GNU long name or long link (`L`, `K`), pax (`x`): of the member that follows, at most 64 KiB
//!                    └─ global pax (`g`): passed over
//! ```
//! The heads are those of POSIX (pax, "ustar Interchange Format") and GNU tar; the crate `tar` decodes each. Its own reader
//! takes an extension into memory as long as it is.

use std::io::{self, BufReader, Read, Seek};

use tar::{EntryType, Header, PaxExtensions};

const BLOCK: usize = 512;
/// Most bytes of a name that has a head of its own, and of one member's pax records.
const MOST_EXTENSION: u64 = 64 * 1024;
/// Longest name: Linux has no longer path.
const MOST_NAME: usize = 4096;
/// Most bytes of all names together.
const MOST_NAMES: usize = 16 * 1024 * 1024;
/// Most members.
const MOST_MEMBERS: usize = 100_000;

/// Why an archive is not read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It is not a tar archive, or is larger than allowed.
    #[error("{0}")]
    Shape(String),
    /// It ends before its end.
    #[error("it is cut off")]
    Cut,
    /// What it is read from fails.
    #[error(transparent)]
    Io(io::Error),
}

/// A file, folder or link of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path, as it stands there.
    pub name: String,
    /// What it leads to, if it is a link.
    pub link: Option<String>,
    /// What it is.
    pub kind: EntryType,
    /// Where its bytes begin.
    pub at: u64,
    /// How many there are.
    pub size: u64,
}

/// Something that is read, and of which parts can be passed over.
pub trait Skip: Read {
    /// Passes over so many bytes.
    ///
    /// # Errors
    /// There are fewer ([`io::ErrorKind::UnexpectedEof`]), or it cannot be read.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// What comes in order only: bytes are passed over by reading them.
pub struct Stream<R>(pub R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<R: Read> Skip for Stream<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.0).take(bytes), &mut io::sink())?;
        if passed == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// A file: bytes are passed over by seeking.
pub struct Seeking<F> {
    file: BufReader<F>,
    left: u64,
}

impl<F: Read + Seek> Seeking<F> {
    /// From its beginning.
    pub fn new(mut file: F) -> io::Result<Self> {
        let left = file.seek(io::SeekFrom::End(0))?;
        file.rewind()?;
        Ok(Self { file: BufReader::new(file), left })
    }
}

impl<F: Read> Read for Seeking<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

impl<F: Read + Seek> Skip for Seeking<F> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let by = i64::try_from(bytes).ok().filter(|_| bytes <= self.left).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.left -= bytes;
        self.file.seek_relative(by)
    }
}

/// The heads of an archive. Between two of them the bytes of the member can be read.
pub struct Heads<R> {
    from: R,
    at: u64,
    /// Bytes of the member that are still to come, and those that fill its last block.
    left: u64,
    filling: u64,
    members: usize,
    names: usize,
}

/// What heads before a member's own say about it.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
}

impl<R: Skip> Heads<R> {
    /// The archive that begins where `from` is.
    pub fn new(from: R) -> Self {
        Self { from, at: 0, left: 0, filling: 0, members: 0, names: 0 }
    }

    /// The next member, or none at the end.
    ///
    /// # Errors
    /// It is no archive, it is cut off, or it goes beyond the bounds.
    pub fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        let mut extension = Extension::default();
        loop {
            self.pass_over()?;
            let Some(header) = self.head()? else {
                return if extension.is_empty() { Ok(None) } else { Err(TarError::Cut) };
            };
            self.members += 1;
            if self.members > MOST_MEMBERS {
                return Err(TarError::Shape(format!("it has more than {MOST_MEMBERS} members")));
            }
            let size = header.entry_size().map_err(|error| TarError::Shape(error.to_string()))?;
            let kind = header.entry_type();
            let place = match kind.as_byte() {
                b'L' => &mut extension.name,
                b'K' => &mut extension.link,
                b'x' => &mut extension.pax,
                b'g' => {
                    self.content_is(size)?;
                    continue;
                }
                b'S' => return Err(TarError::Shape("a member is sparse, as GNU tar writes it with `--sparse`".into())),
                _ => return self.member(&header, size, &extension).map(Some),
            };
            if size > MOST_EXTENSION {
                let told =
                    format!("a member's name or its pax records have {size} bytes, at most {MOST_EXTENSION} fit");
                return Err(TarError::Shape(told));
            }
            if place.is_some() {
                return Err(TarError::Shape("a member has two names of one kind".to_owned()));
            }
            self.content_is(size)?;
            let mut bytes = Vec::new();
            self.read_to_end(&mut bytes)?;
            *place = Some(bytes);
        }
    }

    fn member(&mut self, header: &Header, size: u64, extension: &Extension) -> Result<Member, TarError> {
        let pax = extension.pax.as_deref().map(records).transpose()?.unwrap_or_default();
        let name =
            pax.path.or_else(|| extension.name.as_deref().map(text)).unwrap_or_else(|| text(&header.path_bytes()));
        let is_link = header.entry_type().is_symlink() || header.entry_type().is_hard_link();
        let in_head = || header.link_name_bytes().map(|link| text(&link));
        let link = pax.link.or_else(|| extension.link.as_deref().map(text)).or_else(in_head).filter(|_| is_link);
        let longest = name.len().max(link.as_ref().map_or(0, String::len));
        if longest > MOST_NAME {
            return Err(TarError::Shape(format!("a name in it has {longest} bytes, at most {MOST_NAME} fit")));
        }
        self.names += name.len() + link.as_ref().map_or(0, String::len);
        if self.names > MOST_NAMES {
            return Err(TarError::Shape(format!("the names in it have more than {MOST_NAMES} bytes together")));
        }
        // Links, folders and devices have no bytes, whatever their size says (pax, "ustar Interchange Format").
        let has_bytes = matches!(header.entry_type().as_byte(), b'0' | b'\0' | b'7') || !known(header.entry_type());
        let size = if has_bytes { pax.size.unwrap_or(size) } else { 0 };
        let at = self.at;
        self.content_is(size)?;
        Ok(Member { name, link, kind: header.entry_type(), at, size })
    }

    /// A head, or none at the end: a block of zeros, or no block at all.
    fn head(&mut self) -> Result<Option<Header>, TarError> {
        let mut block = [0; BLOCK];
        let mut read = 0;
        while read < BLOCK {
            match self.from.read(&mut block[read..]) {
                Ok(0) if read == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Cut),
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(TarError::Shape(
                "it is no tar archive, or damaged: the checksum of a head is wrong".to_owned(),
            ));
        }
        Ok(Some(header))
    }

    fn content_is(&mut self, size: u64) -> Result<(), TarError> {
        let filling = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let end = self.at.checked_add(size).and_then(|end| end.checked_add(filling));
        self.at = end.ok_or_else(|| TarError::Shape(format!("a member of {size} bytes is larger than any file")))?;
        (self.left, self.filling) = (size, filling);
        Ok(())
    }

    fn pass_over(&mut self) -> Result<(), TarError> {
        let (left, filling) = (std::mem::take(&mut self.left), std::mem::take(&mut self.filling));
        self.from.skip(left)?;
        match self.from.skip(filling) {
            // Some end right behind the last byte.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl<R: Skip> Read for Heads<R> {
    /// Bytes of the member; an archive that is cut off is an error.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.from.read(&mut into[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Extension {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.pax.is_none()
    }
}

/// What pax records say (pax, "pax Extended Header").
#[derive(Default)]
struct Pax {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

fn records(bytes: &[u8]) -> Result<Pax, TarError> {
    let mut pax = Pax::default();
    for record in PaxExtensions::new(bytes) {
        let record = record.map_err(|error| TarError::Shape(error.to_string()))?;
        match record.key_bytes() {
            b"path" => pax.path = Some(text(record.value_bytes())),
            b"linkpath" => pax.link = Some(text(record.value_bytes())),
            b"size" => {
                let size = record.value().ok().and_then(|value| value.parse().ok());
                pax.size = Some(size.ok_or_else(|| TarError::Shape("a member's pax size is no number".to_owned()))?);
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(TarError::Shape("a member is sparse, as GNU tar writes it with `--sparse`".to_owned()));
            }
            _ => {}
        }
    }
    Ok(pax)
}

/// Kinds that POSIX names: what is unknown is read as a file.
fn known(kind: EntryType) -> bool {
    matches!(kind.as_byte(), b'\0' | b'0'..=b'7')
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Cut } else { Self::Io(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use rstest::rstest;
    use tar::{Builder, EntryType, Header};

    use super::{Heads, Member, Seeking, Skip, Stream, TarError};

    fn all<R: Skip>(from: R) -> Result<Vec<(Member, Vec<u8>)>, TarError> {
        let (mut heads, mut found) = (Heads::new(from), Vec::new());
        while let Some(member) = heads.next_member()? {
            let mut bytes = Vec::new();
            heads.read_to_end(&mut bytes)?;
            found.push((member, bytes));
        }
        Ok(found)
    }

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        header
    }

    /// A head with these bytes behind it.
    fn member(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut archive = header(EntryType::new(kind), bytes.len() as u64).as_bytes().to_vec();
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
        archive
    }

    fn sample() -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        let long = "folder/".repeat(40);
        builder.append_data(&mut header(EntryType::Regular, 5), format!("{long}file"), &b"bytes"[..]).expect("added");
        builder
            .append_link(&mut header(EntryType::Symlink, 0), format!("{long}link"), format!("{long}file"))
            .expect("added");
        builder.append_pax_extensions([("path", &b"of pax"[..]), ("comment", b"x")]).expect("added");
        builder.append_data(&mut header(EntryType::Regular, 600), "short", &[7; 600][..]).expect("added");
        builder.into_inner().expect("an archive")
    }

    #[test]
    fn names_links_and_bytes_are_those_that_were_put_in() {
        let archive = sample();
        let found = all(Stream(&archive[..])).expect("an archive");
        let long = "folder/".repeat(40);
        let told: Vec<_> =
            found.iter().map(|(member, bytes)| (member.name.as_str(), member.link.as_deref(), bytes.len())).collect();
        let (file, link) = (format!("{long}file"), format!("{long}link"));
        assert_eq!(told, [(file.as_str(), None, 5), (&link, Some(file.as_str()), 0), ("of pax", None, 600)]);
        for (member, bytes) in &found {
            let at = usize::try_from(member.at).expect("a place");
            assert_eq!(archive[at..at + bytes.len()], bytes[..]);
        }
        assert_eq!(all(Seeking::new(Cursor::new(&archive)).expect("a file")).expect("an archive"), found);
    }

    #[rstest]
    #[case::huge_name(member(b'L', &vec![b'a'; 70_000]), "have 70000 bytes, at most 65536 fit")]
    #[case::huge_pax(member(b'x', &vec![b'a'; 70_000]), "have 70000 bytes")]
    #[case::long_name([member(b'L', &[b'a'; 5000]), member(b'0', b"x")].concat(), "a name in it has 5000 bytes")]
    #[case::two_names([member(b'L', b"a"), member(b'L', b"b"), member(b'0', b"x")].concat(), "two names")]
    #[case::nothing_named(member(b'L', b"a"), "cut off")]
    #[case::sparse(member(b'S', b"x"), "sparse")]
    #[case::sparse_pax([member(b'x', b"22 GNU.sparse.major=1\n"), member(b'0', b"x")].concat(), "sparse")]
    #[case::no_size([member(b'x', b"10 size=x\n"), member(b'0', b"x")].concat(), "no number")]
    #[case::cut(member(b'0', &[1; 600])[..700].to_vec(), "cut off")]
    #[case::half_a_head(member(b'0', b"x")[..100].to_vec(), "cut off")]
    #[case::noise(vec![7; 1024], "no tar archive")]
    #[case::pax_larger_than_all([member(b'x', b"29 size=18446744073709551615\n"), member(b'0', b"x")].concat(), "larger than any file")]
    fn what_goes_beyond_the_bounds_is_refused(#[case] archive: Vec<u8>, #[case] why: &str) {
        for found in [all(Stream(&archive[..])), all(Seeking::new(Cursor::new(&archive)).expect("a file"))] {
            let told = found.expect_err("refused").to_string();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn more_members_or_names_than_any_image_has_are_refused() {
        let many = member(b'0', b"").repeat(100_001);
        let told = all(Stream(&many[..])).expect_err("refused").to_string();
        assert_eq!(told, "it has more than 100000 members");
        let named = [member(b'L', &[b'a'; 4096]), member(b'0', b"")].concat().repeat(4097);
        let told = all(Stream(&named[..])).expect_err("refused").to_string();
        assert_eq!(told, "the names in it have more than 16777216 bytes together");
    }

    #[test]
    fn the_size_of_pax_counts() {
        let mut large = member(b'x', b"12 size=600\n");
        large.extend(header(EntryType::Regular, 0).as_bytes());
        large.extend([1; 1024]);
        large.extend(member(b'0', b"next"));
        let found = all(Stream(&large[..])).expect("an archive");
        assert_eq!(found.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [600, 4]);
    }

    #[test]
    fn a_disk_that_fails_is_no_fault_of_the_archive() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::from_raw_os_error(5))
            }
        }
        assert!(matches!(all(Stream(Broken)), Err(TarError::Io(_))));
    }
}

//! Ironic's database: where there is none that the release's Ironic can use, an empty one is put in its place.
//!
//! Ironic cannot bring a sqlite database from one version to the next. It need not: everything in it is made again from
//! the cluster's resources.

use std::io;
use std::path::Path;

use crate::host::files;

/// File of the database.
pub const FILE: &str = "ironic.sqlite";
/// A file beside it that says which database this is: the image's digest and an id.
const MARK: &str = "made-of";
/// How the file begins (`SQLite` file format, 1.3).
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Why a database is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was none.
    First,
    /// It was gone, or is no database.
    Lost,
    /// It is that of another Ironic.
    OtherRelease,
}

impl Reason {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::First => "there was none",
            Self::Lost => "the former one was lost",
            Self::OtherRelease => "the former one is that of another release",
        }
    }
}

/// The database that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// A new id for each database that is made.
    pub id: String,
    /// Why it was made just now, if it was.
    pub made: Option<Reason>,
}

/// What must be done. `mark` is the text of the mark that is there, `head` the beginning of the database that is there.
fn decide(mark: Option<&str>, head: Option<&[u8]>, image: &str, lost: bool) -> Result<String, Reason> {
    let Some((of, id)) = mark.and_then(|mark| mark.trim().split_once(' ')) else { return Err(Reason::First) };
    if of != image {
        return Err(Reason::OtherRelease);
    }
    if lost || head.is_none_or(|head| !head.starts_with(MAGIC)) {
        return Err(Reason::Lost);
    }
    Ok(id.to_owned())
}

/// Makes sure that there is a database of that image in `dir`. `empty` is the file of a new one, read when it is needed.
pub fn ensure(dir: &Path, empty: &Path, image: &str, lost: bool) -> io::Result<Database> {
    let (file, mark) = (dir.join(FILE), dir.join(MARK));
    let there = fs_err::read_to_string(&mark).ok();
    let reason = match decide(there.as_deref(), head(&file)?.as_deref(), image, lost) {
        Ok(id) => return Ok(Database { id, made: None }),
        Err(reason) => reason,
    };
    // The mark is removed first and written last: after a power cut in between, the database counts as lost.
    for name in [MARK.to_owned(), format!("{FILE}-journal"), format!("{FILE}-wal"), format!("{FILE}-shm")] {
        files::remove(&dir.join(name))?;
    }
    // Written even when the bytes are the same: pages of a damaged file are not kept.
    let _ = fs_err::remove_file(&file);
    files::write_durably(&file, &fs_err::read(empty)?, 0o640)?;
    super::give(&file)?;
    let id = hex::encode(rand::random::<[u8; 8]>());
    files::write_durably(&mark, format!("{image} {id}\n").as_bytes(), files::SECRET)?;
    Ok(Database { id, made: Some(reason) })
}

fn head(file: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let opened = match fs_err::File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut head = Vec::new();
    opened.take(16).read_to_end(&mut head)?;
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::{FILE, MARK, Reason, decide, ensure};

    #[test]
    fn only_a_database_of_this_image_is_kept() {
        let good = b"SQLite format 3\0 and more".as_slice();
        let table = [
            (None, None, false, Err(Reason::First)),
            (None, Some(good), false, Err(Reason::First)),
            (Some("aa 1\n"), Some(good), false, Ok("1".to_owned())),
            (Some("aa 1\n"), Some(good), true, Err(Reason::Lost)),
            (Some("aa 1\n"), None, false, Err(Reason::Lost)),
            (Some("aa 1\n"), Some(b"".as_slice()), false, Err(Reason::Lost)),
            (Some("aa 1\n"), Some(b"noise".as_slice()), false, Err(Reason::Lost)),
            (Some("bb 1\n"), Some(good), false, Err(Reason::OtherRelease)),
            (Some("half"), Some(good), false, Err(Reason::First)),
        ];
        for (mark, head, lost, expected) in table {
            assert_eq!(decide(mark, head, "aa", lost), expected, "{mark:?} {head:?} {lost}");
        }
    }

    #[test]
    fn each_database_has_a_name_of_its_own() {
        let dir = tempfile::tempdir().expect("a folder");
        let empty = dir.path().join("empty");
        fs_err::write(&empty, b"SQLite format 3\0").expect("written");
        let ensure = |image: &str| ensure(dir.path(), &empty, image, false).expect("a database");
        let first = ensure("aa");
        assert_eq!(first.made, Some(Reason::First));
        let kept = ensure("aa");
        assert_eq!((&kept.id, kept.made), (&first.id, None));
        fs_err::remove_file(dir.path().join(FILE)).expect("lost");
        fs_err::write(dir.path().join(format!("{FILE}-journal")), "old").expect("a journal");
        let second = ensure("aa");
        assert!(second.made == Some(Reason::Lost) && second.id != first.id);
        assert!(!dir.path().join(format!("{FILE}-journal")).exists(), "a journal belongs to the lost one");
        fs_err::remove_file(dir.path().join(MARK)).expect("a power cut");
        assert_eq!(ensure("aa").made, Some(Reason::First));
        assert_eq!(ensure("bb").made, Some(Reason::OtherRelease));
    }
}

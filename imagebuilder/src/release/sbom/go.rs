//! What a Go program was built from: the list that the linker leaves in it.
//!
//! Source: Go's `debug/buildinfo`, `runtime/debug.ParseBuildInfo`; the ELF specification for finding the section.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fs_err::File;
use serde::{Deserialize, Serialize};

/// Name of the section.
const SECTION: &[u8] = b".go.buildinfo";
/// What it begins with, and where the texts begin when they are within it (flag 2).
const MAGIC: &[u8] = b"\xff Go buildinf:";
const FLAGS_AT: usize = 15;
const INLINE: u8 = 2;
const TEXTS_AT: usize = 32;
/// Marks around the list of modules.
const SENTINEL: usize = 16;
/// ELF: 64-bit header, entry of the section table.
const ELF_MAGIC: &[u8] = b"\x7fELF\x02\x01";
const SECTION_HEADER: usize = 64;

/// A Go module at a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Module {
    /// Path.
    pub path: String,
    /// Version.
    pub version: String,
    /// `h1:...` of `go.sum`.
    pub sum: String,
}

/// A Go program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version of Go.
    pub go: String,
    /// Package of its `main`.
    pub package: String,
    /// Module of that package.
    pub main: Option<Module>,
    /// The modules it is linked with.
    pub modules: Vec<Module>,
}

/// What the program says about itself; `None` when it was not made by Go.
pub fn read(path: &Path) -> io::Result<Option<Program>> {
    let Some(section) = section(&File::open(path)?)? else { return Ok(None) };
    Ok(texts(&section).map(|(go, list)| parse(go, list)))
}

fn section(file: &File) -> io::Result<Option<Vec<u8>>> {
    let read = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.file().read_exact_at(&mut bytes, at).map(|()| bytes)
    };
    if file.metadata()?.len() < SECTION_HEADER as u64 {
        return Ok(None);
    }
    let header = read(0, SECTION_HEADER)?;
    if !header.starts_with(ELF_MAGIC) {
        return Ok(None);
    }
    // e_shoff, e_shnum, e_shstrndx
    let (table_at, count, names) = (number(&header, 0x28, 8), number(&header, 0x3C, 2), number(&header, 0x3E, 2));
    let table = read(table_at, usize::try_from(count).map_err(io::Error::other)? * SECTION_HEADER)?;
    // sh_offset, sh_size
    let place = |entry: &[u8]| (number(entry, 0x18, 8), usize::try_from(number(entry, 0x20, 8)).unwrap_or(0));
    let Some(strings) = table.chunks_exact(SECTION_HEADER).nth(usize::try_from(names).map_err(io::Error::other)?)
    else {
        return Ok(None);
    };
    let (at, length) = place(strings);
    let strings = read(at, length)?;
    for entry in table.chunks_exact(SECTION_HEADER) {
        let name = usize::try_from(number(entry, 0, 4)).map_err(io::Error::other)?;
        let name = strings.get(name..).unwrap_or_default().split(|byte| *byte == 0).next();
        if name == Some(SECTION) {
            let (at, length) = place(entry);
            return read(at, length).map(Some);
        }
    }
    Ok(None)
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Version of Go and the list of modules.
fn texts(section: &[u8]) -> Option<(&str, &str)> {
    if !section.starts_with(MAGIC) || section.get(FLAGS_AT)? & INLINE == 0 {
        return None;
    }
    let (go, rest) = text(section.get(TEXTS_AT..)?)?;
    let (list, _) = text(rest)?;
    let list = list.get(SENTINEL..list.len().checked_sub(SENTINEL)?)?;
    Some((std::str::from_utf8(go).ok()?, std::str::from_utf8(list).ok()?))
}

/// A text behind its length (`binary.Uvarint`), and what follows.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return bytes.get(at + 1..)?.split_at_checked(length);
        }
    }
    None
}

fn parse(go: &str, list: &str) -> Program {
    let mut program = Program { go: go.to_owned(), ..Program::default() };
    for line in list.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let module = |words: &[&str]| Module {
            path: words.first().copied().unwrap_or_default().to_owned(),
            version: words.get(1).copied().unwrap_or_default().to_owned(),
            sum: words.get(2).copied().unwrap_or_default().to_owned(),
        };
        match words.first().copied() {
            Some("path") => words.get(1).copied().unwrap_or_default().clone_into(&mut program.package),
            Some("mod") => program.main = Some(module(&words[1..])),
            Some("dep") => program.modules.push(module(&words[1..])),
            // What was linked in place of the module before.
            Some("=>") => {
                program.modules.pop();
                program.modules.push(module(&words[1..]));
            }
            _ => {}
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::{Module, parse, read, texts};

    fn module(path: &str, version: &str, sum: &str) -> Module {
        Module { path: path.to_owned(), version: version.to_owned(), sum: sum.to_owned() }
    }

    #[test]
    fn the_linkers_list_is_read_with_replacements() {
        let list = "path\texample.org/a/cmd/a\nmod\texample.org/a\tv1.2.0\th1:AAAA=\ndep\texample.org/b\tv0.1.0\th1:BBBB=\n\
                    dep\texample.org/c\tv0.0.0\n=>\texample.org/fork\tv0.3.0\th1:CCCC=\nbuild\tCGO_ENABLED=0\n";
        let sentinel = "0123456789abcdef";
        let inner = format!("{sentinel}{list}{sentinel}");
        let mut section = b"\xff Go buildinf:\x08\x02".to_vec();
        section.resize(32, 0);
        section.push(8);
        section.extend(b"go1.25.1");
        let length = inner.len();
        section
            .extend([u8::try_from(length & 0x7F).expect("seven bits") | 0x80, u8::try_from(length >> 7).expect("few")]);
        section.extend(inner.as_bytes());
        let (go, found) = texts(&section).expect("both texts");
        assert_eq!((go, found), ("go1.25.1", list));
        let program = parse(go, found);
        assert_eq!(program.package, "example.org/a/cmd/a");
        assert_eq!(program.main, Some(module("example.org/a", "v1.2.0", "h1:AAAA=")));
        let modules = [module("example.org/b", "v0.1.0", "h1:BBBB="), module("example.org/fork", "v0.3.0", "h1:CCCC=")];
        assert_eq!(program.modules, modules);
        for cut in 0..section.len() {
            assert_eq!(texts(&section[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_program_of_another_language_has_no_list() {
        let own = std::env::current_exe().expect("this test");
        assert_eq!(read(&own).expect("readable"), None);
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("script");
        fs_err::write(&path, "#!/bin/sh\n").expect("written");
        assert_eq!(read(&path).expect("readable"), None);
    }
}

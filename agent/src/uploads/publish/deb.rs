//! Reading what a Debian package says about itself (deb(5), deb-control(5)).

use std::io::{self, Read};

use flate2::read::GzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::Stream;
use serde::{Deserialize, Serialize};

use crate::tarball::{self, Heads, TarError};

/// First bytes of an ar archive, and length of a member's head (ar(5)).
const MAGIC: &[u8; 8] = b"!<arch>\n";
const HEAD: usize = 60;
/// Most bytes of the control file, and of the whole control archive unpacked: packages with many maintainer scripts
/// have some 100 KiB.
const CONTROL: u64 = 256 * 1024;
const UNPACKED: u64 = 64 * 1024 * 1024;
/// Most memory for unpacking it.
const DECODER: u64 = 32 * 1024 * 1024;
/// Most members before it: there is one, `debian-binary`, and there may be some whose names begin with `_`.
const MEMBERS: usize = 16;

/// Fields whose value apt takes apart.
const RELATIONS: [&str; 9] =
    ["Pre-Depends", "Depends", "Recommends", "Suggests", "Enhances", "Conflicts", "Breaks", "Replaces", "Provides"];

/// Why a file is no package.
#[derive(Debug, thiserror::Error)]
pub(super) enum DebError {
    #[error("it is no Debian package: {0}")]
    Shape(&'static str),
    #[error("its control file has no `{0}`, or one that is none")]
    Field(&'static str),
    #[error("line {0} of its control file is neither `Name: value`, nor indented, or its name stands there twice")]
    Line(usize),
    #[error("its control file has `{0}: {1}`, where expected are names such as `a (>= 1), b | c`")]
    Relation(&'static str, String),
    #[error("it is no Debian package: {0}")]
    Tar(String),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl From<TarError> for DebError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Io(error) => Self::Io(error),
            error @ (TarError::Shape(_) | TarError::Cut) => Self::Tar(format!("`control.tar`: {error}")),
        }
    }
}

/// The control file's text without its last line break; each line is as it stands in the package.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Control {
    pub(super) text: String,
    pub(super) architecture: String,
}

/// Reads the control file of a package. Stops before its data.
pub(super) fn control(package: impl Read) -> Result<Control, DebError> {
    let mut package = package;
    let mut magic = [0; MAGIC.len()];
    package.read_exact(&mut magic).map_err(|_| DebError::Shape("it is shorter than a head"))?;
    if &magic != MAGIC {
        return Err(DebError::Shape("it does not begin with `!<arch>`"));
    }
    for _ in 0..MEMBERS {
        let mut head = [0; HEAD];
        package.read_exact(&mut head).map_err(|_| DebError::Shape("there is no `control.tar`"))?;
        let head = std::str::from_utf8(&head).map_err(|_| DebError::Shape("a member's head is no text"))?;
        let (name, size) = (head.get(..16).unwrap_or_default().trim_end(), head.get(48..58).unwrap_or_default());
        let size: u64 = size.trim_end().parse().map_err(|_| DebError::Shape("a member's size is no number"))?;
        let mut member = (&mut package).take(size);
        match name.trim_end_matches('/') {
            "control.tar" => return in_tar(member),
            "control.tar.gz" => return in_tar(GzDecoder::new(member)),
            "control.tar.xz" => {
                let decoder = Stream::new_stream_decoder(DECODER, 0).map_err(io::Error::other)?;
                return in_tar(XzDecoder::new_stream(member, decoder));
            }
            "control.tar.zst" => {
                let mut decoder = zstd::Decoder::new(member)?;
                decoder.window_log_max(DECODER.ilog2())?;
                return in_tar(decoder);
            }
            name if name.starts_with("data.tar") => return Err(DebError::Shape("there is no `control.tar`")),
            _ => {
                io::copy(&mut member, &mut io::sink())?;
                // Members begin at even places.
                io::copy(&mut (&mut package).take(size % 2), &mut io::sink())?;
            }
        }
    }
    Err(DebError::Shape("there is no `control.tar` among its first members"))
}

fn in_tar(archive: impl Read) -> Result<Control, DebError> {
    let mut archive = archive.take(UNPACKED);
    let found = control_file(&mut archive);
    if archive.limit() == 0 { Err(DebError::Shape("`control.tar` unpacks to 64 MiB or more")) } else { parse(&found?) }
}

fn control_file(archive: impl Read) -> Result<String, DebError> {
    let mut heads = Heads::new(tarball::Stream(archive));
    while let Some(member) = heads.next_member()? {
        if member.name.trim_start_matches("./") == "control" && member.kind.is_file() {
            if member.size > CONTROL {
                return Err(DebError::Shape("its control file is larger than 256 KiB"));
            }
            let mut text = String::new();
            heads.read_to_string(&mut text).map_err(|_| DebError::Shape("its control file is no UTF-8"))?;
            return Ok(text);
        }
    }
    Err(DebError::Shape("`control.tar` has no control file"))
}

/// One stanza, made fit for an index: nothing in it can begin another one.
fn parse(text: &str) -> Result<Control, DebError> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n").trim_matches('\n').to_owned();
    if text.lines().any(str::is_empty) || text.contains('\r') {
        return Err(DebError::Shape("its control file has more than one stanza"));
    }
    check_lines(&text)?;
    // What the index says about the file is the box's own.
    for own in ["Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512"] {
        if field(&text, own).is_some() {
            return Err(DebError::Shape("its control file has fields of an index"));
        }
    }
    let architecture = needed(&text, "Architecture", "-")?;
    needed(&text, "Package", "+-._")?;
    needed(&text, "Version", "+-._~:")?;
    for name in RELATIONS {
        if let Some(value) = unfolded(&text, name).filter(|value| !value.split([',', '|']).all(is_relation)) {
            return Err(DebError::Relation(name, value.chars().take(100).collect()));
        }
    }
    Ok(Control { text, architecture })
}

/// A line that apt cannot read would take all other packages of the index with it.
fn check_lines(text: &str) -> Result<(), DebError> {
    let mut names: Vec<String> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let bad = || DebError::Line(at + 1);
        if line.contains('\0') {
            return Err(bad());
        }
        if line.starts_with([' ', '\t']) && at > 0 {
            continue;
        }
        let name = line.split_once(':').ok_or_else(bad)?.0.to_ascii_lowercase();
        let letters = name.bytes().all(|byte| byte.is_ascii_graphic());
        if !letters || name.is_empty() || name.starts_with(['-', '#']) || names.contains(&name) {
            return Err(bad());
        }
        names.push(name);
    }
    Ok(())
}

/// The value of a field that is one word of letters, digits and these.
fn needed(text: &str, name: &'static str, more: &str) -> Result<String, DebError> {
    let good = |value: &&str| value.starts_with(|first: char| first.is_ascii_alphanumeric()) && is_word(value, more);
    field(text, name).filter(good).map(str::to_owned).ok_or(DebError::Field(name))
}

/// Letters, digits and these, at least one.
fn is_word(text: &str, more: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(char::from(byte)))
}

/// A field with the lines that go on with it.
fn unfolded(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| field(line, name).is_none());
    let first = field(lines.next()?, name)?.to_owned();
    Some(lines.take_while(|line| line.starts_with([' ', '\t'])).fold(first, |all, line| all + " " + line.trim()))
}

/// `name`, `name:any`, `name (>= 1.0)`; nothing where a comma is the last sign (Debian policy, 7.1).
fn is_relation(text: &str) -> bool {
    let text = text.trim();
    let (name, version) = text.split_once('(').map_or((text, None), |(name, version)| (name.trim_end(), Some(version)));
    let named = match name.split_once(':') {
        Some((name, architecture)) => is_word(name, "+-._") && is_word(architecture, "-"),
        None => is_word(name, "+-._"),
    };
    let versioned = version.is_none_or(|version| {
        let of = version.trim_start_matches(['<', '>', '=']);
        let sign = &version[..version.len() - of.len()];
        ["<<", "<=", "=", ">=", ">>", "<", ">"].contains(&sign)
            && of.strip_suffix(')').is_some_and(|of| is_word(of.trim(), "+-._~:"))
    });
    text.is_empty() || (named && versioned)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_name = |line: &'a str| line.split_once(':').filter(|(found, _)| found.eq_ignore_ascii_case(name));
    text.lines().find_map(of_name).map(|(_, value)| value.trim())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use rstest::rstest;

    use super::{DebError, control};

    /// A package with this control file, its control archive compressed as `ending` says.
    pub(in crate::uploads::publish) fn package(control: &str, ending: &str) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(control.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "./control", control.as_bytes()).expect("added");
        let tar = tar.into_inner().expect("a tar archive");
        let packed = match ending {
            ".gz" => {
                let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gz.write_all(&tar).expect("written");
                gz.finish().expect("gz")
            }
            ".xz" => {
                let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
                xz.write_all(&tar).expect("written");
                xz.finish().expect("xz")
            }
            ".zst" => zstd::encode_all(tar.as_slice(), 3).expect("zst"),
            _ => tar,
        };
        let mut deb = b"!<arch>\n".to_vec();
        let name = format!("control.tar{ending}");
        let data = tar::Builder::new(Vec::new()).into_inner().expect("an empty archive");
        for (name, bytes) in [("debian-binary", b"2.0\n".as_slice()), (&name, &packed), ("data.tar", &data)] {
            deb.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, bytes.len()).bytes());
            deb.extend(bytes);
            deb.extend(std::iter::repeat_n(b'\n', bytes.len() % 2));
        }
        deb
    }

    const TEXT: &str = "Package: tool\nVersion: 1:2.0-1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: short\n long\n .\n more\n";

    #[rstest]
    fn the_control_file_is_found_however_it_is_packed(#[values("", ".gz", ".xz", ".zst")] ending: &str) {
        let found = control(package(TEXT, ending).as_slice()).expect("a package");
        assert_eq!((found.text.as_str(), found.architecture.as_str()), (TEXT.trim_end(), "all"));
    }

    #[rstest]
    #[case::two_stanzas("Package: a\nVersion: 1\nArchitecture: all\n\nPackage: libc6\n", "more than one stanza")]
    #[case::index_field("Package: a\nVersion: 1\nArchitecture: all\nfilename: ../x\n", "fields of an index")]
    #[case::no_version("Package: a\nArchitecture: all\n", "`Version`")]
    #[case::blank_name("Package: a b\nVersion: 1\nArchitecture: all\n", "`Package`")]
    #[case::path("Package: ../a\nVersion: 1\nArchitecture: all\n", "`Package`")]
    #[case::no_field("Package: a\nVersion: 1\nArchitecture: all\nnothing\n", "line 4 ")]
    #[case::indented_first(" Package: a\nVersion: 1\nArchitecture: all\n", "line 1 ")]
    #[case::blank_before_the_colon("Package: a\nVersion: 1\nArchitecture: all\nFilename : ../x\n", "line 4 ")]
    #[case::twice("Package: a\nVersion: 1\nArchitecture: all\npackage: b\n", "line 4 ")]
    #[case::zero("Package: a\nVersion: 1\nArchitecture: all\nSection: a\0b\n", "line 4 ")]
    #[case::relation("Package: a\nVersion: 1\nArchitecture: all\nDepends: b (>= \n", "`Depends: b (>=`")]
    #[case::relation_below("Package: a\nVersion: 1\nArchitecture: all\nDepends: b,\n c d\n", "`Depends: b, c d`")]
    fn a_control_file_that_would_lie_in_an_index_is_refused(#[case] text: &str, #[case] why: &str) {
        let error = control(package(text, ".gz").as_slice()).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn relations_as_packages_have_them_are_taken() {
        let relations = "libc6 (>= 2.38), a | b:any (<< 1:2~rc1-3+b1),\n c (=2),\n d,";
        let text = format!("Package: a\nVersion: 1\nArchitecture: all\nDepends: {relations}\nProvides: x (= 1)\n");
        control(package(&text, ".gz").as_slice()).expect("a package");
        let unknown = "Package: a\nVersion: 1\nArchitecture: all\nX-Ours: any (thing\nDescription: a\n  b\n";
        control(package(unknown, ".gz").as_slice()).expect("a package");
    }

    #[test]
    fn no_bytes_are_a_package_by_chance() {
        let whole = package(TEXT, ".xz");
        for length in [0, 7, 8, 40, 68, 100, 150] {
            control(&whole[..length]).expect_err("half a package");
        }
        assert!(matches!(control(b"PK\x03\x04 a zip file".as_slice()), Err(DebError::Shape(_))));
    }
}

//! Reads what the box cannot do without, before it is too late for a message: a damaged block in
//! systemd or one of its libraries would otherwise end in a kernel panic.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::fatal::Fatal;
use super::layers::{OpenLayer, SYSROOT, damage_in};
use super::release::WRITE_AGAIN;

/// Programs that must run; their libraries follow from them.
const SYSTEMD: [&str; 2] = ["usr/lib/systemd/systemd", "usr/lib/systemd/systemd-executor"];
const AGENT: &str = "usr/bin/foothold-agent";
/// Where the dynamic loader looks.
const LIBRARIES: [&str; 4] = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd", "usr/lib", "usr/lib64"];
/// ELF (System V ABI): type of the program header of the dynamic section, and its tags.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// Reads all of it, the agent and systemd side by side. Returns the bytes read.
pub fn read_vital_files(layers: &[OpenLayer]) -> Result<u64, Fatal> {
    let (agent, systemd) = std::thread::scope(|scope| {
        let agent = scope.spawn(|| read_with_libraries(&[AGENT], layers));
        let systemd = read_with_libraries(&SYSTEMD, layers);
        (agent.join(), systemd)
    });
    // A thread that panicked has shown why and does not come back.
    Ok(agent.unwrap_or(Ok(0))? + systemd?)
}

fn read_with_libraries(programs: &[&str], layers: &[OpenLayer]) -> Result<u64, Fatal> {
    let root = Path::new(SYSROOT);
    let mut queue: Vec<PathBuf> = programs.iter().map(|path| root.join(path)).collect();
    let mut seen: BTreeSet<PathBuf> = queue.iter().cloned().collect();
    let mut bytes = 0;
    while let Some(path) = queue.pop() {
        let content = match fs_err::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.ends_with(SYSTEMD[0]) => continue,
            Err(error) => return Err(unreadable(&path, &error, layers)),
        };
        bytes += content.len() as u64;
        for name in needed(&content).unwrap_or_default() {
            let found = LIBRARIES.iter().map(|folder| root.join(folder).join(&name)).find(|path| path.exists());
            queue.extend(found.filter(|path| seen.insert(path.clone())));
        }
    }
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error, layers: &[OpenLayer]) -> Fatal {
    let path = path.strip_prefix(SYSROOT).unwrap_or(path).display();
    if let Some(fatal) = layers.iter().find_map(damage_in) {
        let found = format!("{} (in /{path})", fatal.found);
        return Fatal { found, ..fatal };
    }
    Fatal::medium("vital-files", format!("/{path}: {}", error.kind()), "a file that can be read", WRITE_AGAIN)
}

/// Names of the libraries that a 64-bit little-endian ELF file needs; `None` for any other file.
fn needed(elf: &[u8]) -> Option<Vec<String>> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (u64_at(elf, 32)?, u16_at(elf, 54)?, u16_at(elf, 56)?);
    let headers: Vec<&[u8]> = (0..usize::from(count))
        .filter_map(|index| {
            let start = usize::try_from(table).ok()? + index * usize::from(size);
            elf.get(start..start + 56)
        })
        .collect();
    let dynamic = headers.iter().find(|header| u32_at(header, 0) == Some(PT_DYNAMIC))?;
    let (start, length) = (usize::try_from(u64_at(dynamic, 8)?).ok()?, usize::try_from(u64_at(dynamic, 32)?).ok()?);
    let entries: Vec<(u64, u64)> = elf
        .get(start..start.checked_add(length)?)?
        .chunks_exact(16)
        .filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
        .collect();
    let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
    let strings = headers.iter().find_map(|header| in_file(header, strings))?;
    let name = |offset: u64| {
        let bytes = elf.get(usize::try_from(strings.checked_add(offset)?).ok()?..)?;
        let end = bytes.iter().take(256).position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    Some(entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).filter_map(|(_, offset)| name(*offset)).collect())
}

/// Where an address of memory lies in the file, if this segment holds it.
fn in_file(header: &[u8], address: u64) -> Option<u64> {
    let (kind, offset, start, length) =
        (u32_at(header, 0)?, u64_at(header, 8)?, u64_at(header, 16)?, u64_at(header, 32)?);
    let inside = address.checked_sub(start).filter(|inside| kind == PT_LOAD && *inside < length)?;
    offset.checked_add(inside)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::needed;

    #[test]
    fn the_libraries_of_a_real_program_are_found() {
        let shell = fs_err::read("/bin/sh").expect("every host has one");
        let names = needed(&shell).expect("an ELF file");
        assert!(names.iter().any(|name| name.starts_with("libc.so")), "{names:?}");
    }

    #[test]
    fn other_files_need_nothing_and_cut_ones_do_no_harm() {
        assert_eq!(needed(b"#!/bin/sh\n"), None);
        let shell = fs_err::read("/bin/sh").expect("every host has one");
        for length in [0, 10, 64, 100, 1000, 5000] {
            let _ = needed(&shell[..length.min(shell.len())]);
        }
    }
}

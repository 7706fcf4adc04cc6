//! The kernel's log: which block of which device it found damaged.

use std::io::Read;

use rustix::fs::{Mode, OFlags};

/// A damage that the kernel reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// dm-verity: a block of 4096 bytes does not match its digest.
    Verity {
        /// `major:minor` of the device under verity.
        device: String,
        /// `data` or `metadata`.
        kind: String,
        /// Block number.
        block: u64,
    },
    /// The device could not be read.
    Io {
        /// Kernel name.
        device: String,
        /// Sector of 512 bytes.
        sector: u64,
    },
}

/// Reads one message of the kernel, without its time stamp.
pub fn parse(message: &str) -> Option<Damage> {
    if let Some(rest) = after(message, "device-mapper: verity: ") {
        let (device, rest) = rest.split_once(": ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [kind, "block", block, "is", "corrupted", ..] = words[..] else { return None };
        let (device, kind, block) = (device.to_owned(), kind.to_owned(), block.parse().ok()?);
        return Some(Damage::Verity { device, kind, block });
    }
    let rest = after(message, "I/O error, dev ")?;
    let (device, rest) = rest.split_once(", sector ")?;
    let sector = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some(Damage::Io { device: device.to_owned(), sector })
}

fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// Every damage reported since power-on.
pub fn reported() -> Vec<Damage> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open("/dev/kmsg", flags, Mode::empty()) else { return Vec::new() };
    read_new(&mut fs_err::File::from_parts(fd.into(), "/dev/kmsg"))
}

/// Every damage among the messages that wait in an open, non-blocking `/dev/kmsg`.
pub fn read_new(kmsg: &mut impl Read) -> Vec<Damage> {
    let mut found = Vec::new();
    let mut record = [0_u8; 8192];
    loop {
        match kmsg.read(&mut record) {
            Ok(0) => return found,
            Ok(length) => found.extend(parse(&String::from_utf8_lossy(&record[..length]))),
            // Messages were overwritten before they were read: go on with the oldest that is left.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(_) => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Damage, parse};

    #[test]
    fn messages_of_verity_and_of_disks_are_understood() {
        let verity = parse("3,612,3210000,-;device-mapper: verity: 7:0: data block 1234 is corrupted\n");
        let (device, kind) = ("7:0".to_owned(), "data".to_owned());
        assert_eq!(verity, Some(Damage::Verity { device, kind, block: 1234 }));
        let io = parse("3,700,5,-;blk_update_request: I/O error, dev sda, sector 4096 op 0x0:(READ) flags 0x0");
        assert_eq!(io, Some(Damage::Io { device: "sda".to_owned(), sector: 4096 }));
        assert_eq!(parse("6,1,0,-;device-mapper: uevent: version 1.0.3"), None);
    }
}

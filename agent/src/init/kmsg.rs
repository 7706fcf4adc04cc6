//! The kernel's log: which block of which device it found damaged, and whether the initrd itself was.

use std::io::Read;

use rustix::fs::{Mode, OFlags};

/// A damage that the kernel reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelDamage {
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
pub fn parse(message: &str) -> Option<KernelDamage> {
    if let Some(rest) = after(message, "device-mapper: verity: ") {
        let (device, rest) = rest.split_once(": ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [kind, "block", block, "is", "corrupted", ..] = words[..] else { return None };
        let (device, kind, block) = (device.to_owned(), kind.to_owned(), block.parse().ok()?);
        return Some(KernelDamage::Verity { device, kind, block });
    }
    let rest = after(message, "I/O error, dev ")?;
    let (device, rest) = rest.split_once(", sector ")?;
    let sector = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some(KernelDamage::Io { device: device.to_owned(), sector })
}

/// What the kernel says of an initrd that it could not unpack whole; it goes on with what it has.
/// (`init/initramfs.c`: the second form is the one of kernels that know RAM disks.)
pub fn initrd_problem(record: &str) -> Option<&str> {
    let message = record.split_once(';').map_or(record, |(_, message)| message);
    let reason = match message.strip_prefix("Initramfs unpacking failed: ") {
        Some(reason) => reason,
        None => message.strip_prefix("rootfs image is not initramfs (")?.split_once(')')?.0,
    };
    reason.lines().next().map(str::trim)
}

fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// Every damage reported since power-on.
pub fn reported() -> Vec<KernelDamage> {
    from_the_start().map_or_else(|_| Vec::new(), |mut kmsg| read_new(&mut kmsg))
}

/// What the kernel found wrong with the initrd, if it did.
pub fn initrd_problem_of_this_boot() -> Option<String> {
    let mut found = None;
    each_record(&mut from_the_start().ok()?, |record| {
        found = found.take().or_else(|| initrd_problem(record).map(str::to_owned));
    });
    found
}

/// Every damage among the messages that wait in an open, non-blocking `/dev/kmsg`.
pub fn read_new(kmsg: &mut impl Read) -> Vec<KernelDamage> {
    let mut found = Vec::new();
    each_record(kmsg, |record| found.extend(parse(record)));
    found
}

fn from_the_start() -> std::io::Result<fs_err::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
    Ok(fs_err::File::from_parts(fd.into(), "/dev/kmsg"))
}

/// Each read gives one message (`Documentation/ABI/testing/dev-kmsg`).
fn each_record(kmsg: &mut impl Read, mut take: impl FnMut(&str)) {
    let mut record = [0_u8; 8192];
    loop {
        match kmsg.read(&mut record) {
            Ok(0) => return,
            Ok(length) => take(&String::from_utf8_lossy(&record[..length])),
            // Messages were overwritten before they were read: go on with the oldest that is left.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelDamage, initrd_problem, parse};

    #[test]
    fn messages_of_verity_and_of_disks_are_understood() {
        let verity = parse("3,612,3210000,-;device-mapper: verity: 7:0: data block 1234 is corrupted\n");
        let (device, kind) = ("7:0".to_owned(), "data".to_owned());
        assert_eq!(verity, Some(KernelDamage::Verity { device, kind, block: 1234 }));
        let io = parse("3,700,5,-;blk_update_request: I/O error, dev sda, sector 4096 op 0x0:(READ) flags 0x0");
        assert_eq!(io, Some(KernelDamage::Io { device: "sda".to_owned(), sector: 4096 }));
        assert_eq!(parse("6,1,0,-;device-mapper: uevent: version 1.0.3"), None);
    }

    #[test]
    fn an_initrd_that_was_not_unpacked_whole_is_noticed() {
        let table = [
            (
                "3,301,412345,-;Initramfs unpacking failed: ZSTD-compressed data is corrupt\n",
                Some("ZSTD-compressed data is corrupt"),
            ),
            (
                "0,301,412345,-;Initramfs unpacking failed: junk within compressed archive\n SUBSYSTEM=x\n",
                Some("junk within compressed archive"),
            ),
            (
                "6,300,4,-;rootfs image is not initramfs (broken padding); looks like an initrd\n",
                Some("broken padding"),
            ),
            ("6,299,4,-;Trying to unpack rootfs image as initramfs...\n", None),
            ("6,900,4,-;a program says: Initramfs unpacking failed: no\n", None),
        ];
        for (record, expected) in table {
            assert_eq!(initrd_problem(record), expected, "{record}");
        }
    }
}

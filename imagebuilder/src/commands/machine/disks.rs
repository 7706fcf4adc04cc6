//! The disks of a machine: what it starts from, and an empty one to install on.

use std::path::Path;

use agent_api::release::InstallTarget;
use anyhow::{Context as _, Result, bail};
use foothold_qemu::{Bus, Disk, Format, Writes};

use super::Plan;
use crate::cli::{Attach, MachineFirmware};
use crate::disk::gpt::SECTOR;
use crate::medium::Medium;

/// Size of the disk or stick that the image is copied to: room for DATA.
const DISK: u64 = 20 << 30;

/// What the machine starts from. `medium`: the image, where it can be read.
pub(super) fn boot(plan: &Plan<'_>, medium: Option<&Medium>) -> Result<Disk> {
    let mut disk = Disk::open(plan.image).with_context(|| format!("opening the image `{}`", plan.image.display()))?;
    let is_iso = is_iso(plan.image)?;
    let attach = plan.attach.unwrap_or(if is_iso { Attach::Cdrom } else { Attach::Disk });
    match attach {
        Attach::Cdrom if !is_iso => bail!("`{}` is no ISO\nhint: `--as disk` or `--as usb`", plan.image.display()),
        Attach::Cdrom => return Ok(disk),
        Attach::Disk => disk = disk.bus(Bus::Virtio),
        Attach::Usb => disk = disk.bus(Bus::Usb),
    }
    if let Some(bytes) = large_blocks(plan, medium)? {
        if attach == Attach::Disk {
            // The disks of today that have such blocks.
            disk = disk.bus(Bus::Nvme);
        }
        disk = disk.block_bytes(bytes);
    }
    if is_iso {
        // As `dd` would leave it on a stick.
        disk = disk.format(Format::Raw);
    }
    if let Some(overlay) = plan.overlay {
        disk = disk.writes(Writes::Overlay(overlay.to_owned()));
    }
    Ok(disk.grow_to(DISK))
}

/// Bytes of the logical blocks of a disk that such an image was written to, where they are not the usual 512.
fn large_blocks(plan: &Plan<'_>, medium: Option<&Medium>) -> Result<Option<u32>> {
    let bytes = medium.map(Medium::block_bytes).filter(|bytes| *bytes != SECTOR);
    let Some(bytes) = bytes.map(u32::try_from).transpose()? else { return Ok(None) };
    if plan.firmware == MachineFirmware::Bios {
        bail!(
            "`{}` is what was written to a disk with logical blocks of {bytes} bytes, which BIOS does not start from\n\
             hint: `--firmware uefi`",
            plan.image.display()
        );
    }
    Ok(Some(bytes))
}

/// An empty disk as the release wants it, when it installs itself.
pub(super) fn to_install_on(plan: &Plan<'_>, work: &Path, target: InstallTarget) -> Result<Disk> {
    let selector = target.selector;
    let folder = plan.overlay.and_then(Path::parent).unwrap_or(work);
    let empty = folder.join("empty.raw");
    fs_err::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&empty)?
        .set_len(DISK.max(selector.min_bytes.unwrap_or_default()))?;
    let bus = match selector.bus.as_deref() {
        Some("nvme") => Bus::Nvme,
        Some("sata") => Bus::Sata,
        Some("scsi") => Bus::Scsi,
        Some("usb") => Bus::Usb,
        _ => Bus::Virtio,
    };
    let mut disk = Disk::open(&empty)?.format(Format::Raw).bus(bus);
    if let Some(serial) = selector.serial {
        disk = disk.serial(serial);
    }
    Ok(match plan.overlay {
        Some(_) => disk.writes(Writes::Overlay(folder.join("installed.qcow2"))),
        None => disk,
    })
}

fn is_iso(image: &Path) -> Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs_err::File::open(image)?;
    let mut magic = [0; 5];
    // ECMA-119, 8.4: the primary volume descriptor's identifier in sector 16.
    file.seek(SeekFrom::Start(16 * 2048 + 1))?;
    Ok(file.read_exact(&mut magic).is_ok() && &magic == b"CD001" && image.extension().is_none_or(|ext| ext != "raw"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::LoneMachine;
    use crate::config::ByteSize;
    use crate::disk::gpt;
    use crate::medium::sectors::LARGE;

    #[test]
    fn what_was_written_to_a_disk_with_large_blocks_is_one_again_but_not_on_bios() {
        let dir = tempfile::tempdir().expect("a folder");
        let image = dir.path().join("disk.img");
        let memory = ByteSize::mib(512);
        let plan = |firmware| {
            let machine = LoneMachine { firmware, memory, cpus: 1, timeout: None };
            large_blocks(&Plan::alone(&image, None, machine, &image), Medium::open(&image).ok().as_ref())
        };
        for (block, bios, uefi) in [(SECTOR, Some(None), Some(None)), (LARGE, None, Some(Some(4096)))] {
            let table = gpt::encode(1 << 20, block, uuid::Uuid::nil(), &[]);
            let mut bytes = vec![0; 1 << 20];
            bytes[..table.primary.len()].copy_from_slice(&table.primary);
            fs_err::write(&image, bytes).expect("written");
            assert_eq!(plan(MachineFirmware::Bios).ok(), bios, "{block}");
            assert_eq!(plan(MachineFirmware::Uefi).ok(), uefi, "{block}");
        }
        let refused = plan(MachineFirmware::Bios).expect_err("refused").to_string();
        assert!(refused.contains("4096 bytes") && refused.contains("--firmware uefi"), "{refused}");
    }
}

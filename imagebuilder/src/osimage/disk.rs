//! The disk of an OS image.
//!
//! ```text
//! │GPT│1 BIOS│2 ESP  │3 root, as small as its content allows│GPT│   grows to the end of the disk at first boot
//! 0   1 MiB  2 MiB   66 MiB
//! ```
//! Both firmwares come to the same menu in the root: GRUB's core image and Debian's signed GRUB read
//! `EFI/debian/grub.cfg`, which only says where that is.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fs_err::File;
use hadris_fat::FatKind;
use uuid::Uuid;

use super::Input;
use crate::boot::{esp, grub};
use crate::disk::extents::Extents;
use crate::disk::fat::{self, Volume};
use crate::disk::layout::{BIOS_BOOT_AT, BIOS_BOOT_BYTES, MIB};
use crate::disk::{Content, SourceFile, gpt, ids};
use crate::rootfs::INSIDE;
use crate::store::WorkDir;
use crate::toolbox::ImageTools;

/// Size and clusters of the ESP: the smallest that is FAT32 beyond doubt.
const ESP_BYTES: u64 = 64 * MIB;
const ESP_CLUSTER: u32 = 512;
/// Partition type of the discoverable partitions specification: the root on x86-64.
const TYPE_ROOT_X86_64: Uuid = Uuid::from_u128(0x4F68_BCE3_E8CD_4DB1_96E7_FBCA_F984_B709);
/// Room in the root beyond its content: tables, journal, and what the first boot writes before it grows.
const SPARE_BYTES: u64 = 192 * MIB;
/// Size of the journal: for the disk that it grows to.
const JOURNAL_MIB: u64 = 64;
/// Block of the file system.
const BLOCK: u64 = 4096;
/// Name of the tree in the work folder.
pub const TREE: &str = "tree";
/// Name of the file system in the work folder.
const ROOT: &str = "root.ext4";

/// Identifiers of a disk.
pub struct Ids {
    image: String,
    /// The root file system.
    pub root: Uuid,
}

impl Ids {
    /// Those of the image named by `image`.
    pub fn of(image: &str) -> Self {
        Self { image: image.to_owned(), root: ids::uuid(image, "root filesystem") }
    }
}

/// The disk of the finished tree in the work folder.
pub fn compose(input: &Input<'_>, work: &WorkDir, ids: &Ids) -> Result<Extents> {
    let root = make_root(input, work, ids)?;
    let tools = ImageTools { toolbox: input.toolbox, time: input.built };
    let partitions = partitions(ids, root.metadata()?.len());
    let [bios_boot, esp, root_partition] = &partitions;
    let bytes = root_partition.start + root_partition.bytes + MIB;
    let esp_volume = make_esp(input, work, ids, &tools)?;
    let mut core = grub::core_image(grub::Target::Server, &tools, work.path())?;
    grub::place_core(&mut core, bios_boot.start);
    let mut table = gpt::encode(bytes, gpt::SECTOR, ids::uuid(&ids.image, "disk"), &partitions);
    let boot_sector = grub::mbr_code(&tools, bios_boot.start)?;
    table.primary[..boot_sector.len()].copy_from_slice(&boot_sector);

    let mut image = Extents::new(bytes);
    image.push(0, &Content::Bytes(table.primary))?;
    image.push(bios_boot.start, &Content::Bytes(core))?;
    image.push_open(esp.start, &esp_volume)?;
    image.push_open(root_partition.start, &Arc::new(root))?;
    image.push(bytes - table.backup.len() as u64, &Content::Bytes(table.backup))?;
    Ok(image)
}

fn partitions(ids: &Ids, root_bytes: u64) -> [gpt::Partition; 3] {
    let partition = |number, name: &str, type_guid, start, bytes| gpt::Partition {
        number,
        name: name.to_owned(),
        type_guid,
        guid: ids::uuid(&ids.image, name),
        start,
        bytes,
        attributes: 0,
    };
    let esp_at = BIOS_BOOT_AT + BIOS_BOOT_BYTES;
    [
        partition(1, "BIOS", gpt::TYPE_BIOS_BOOT, BIOS_BOOT_AT, BIOS_BOOT_BYTES),
        partition(2, "ESP", gpt::TYPE_ESP, esp_at, ESP_BYTES),
        partition(3, "root", TYPE_ROOT_X86_64, esp_at + ESP_BYTES, root_bytes),
    ]
}

fn make_esp(input: &Input<'_>, work: &WorkDir, ids: &Ids, tools: &ImageTools<'_>) -> Result<Arc<File>> {
    let mut files = esp::signed_files(tools)?;
    let menu = stub(&ids.root).into_bytes();
    files.push(SourceFile { path: esp::GRUB_CFG.to_owned(), content: Content::Bytes(menu) });
    let volume = Volume {
        label: "ESP",
        serial: ids::serial(&ids.image, "ESP"),
        bytes: ESP_BYTES,
        offset: BIOS_BOOT_AT + BIOS_BOOT_BYTES,
        kind: FatKind::Fat32,
        sector: fat::SECTOR,
        cluster: ESP_CLUSTER,
        time: i64::try_from(input.built).context("a build time")?,
    };
    let path = work.path().join("esp.fat");
    fat::write(&path, &volume, &files)?;
    Ok(Arc::new(File::open(path)?))
}

/// The menu on the ESP: where the real one is.
fn stub(root: &Uuid) -> String {
    format!(
        "search --no-floppy --fs-uuid --set=root {root}\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n"
    )
}

/// The menu in the root. Debian's kernel packages keep the links that it names, also when the kernel is replaced.
pub fn menu(root: &Uuid, command_line: &str) -> String {
    let entry = |title: &str, kernel: &str, initrd: &str, more: &str| {
        let parameters = format!("root=UUID={root} ro {command_line}{more}");
        format!(
            "menuentry '{title}' {{\n  \
               search --no-floppy --fs-uuid --set=root {root}\n  \
               if [ \"$grub_platform\" = pc ]; then\n    \
                 linux16 {kernel} {parameters}\n    \
                 initrd16 {initrd}\n  \
               else\n    \
                 linux {kernel} {parameters}\n    \
                 initrd {initrd}\n  \
               fi\n\
             }}\n"
        )
    };
    let previous = entry("Debian, the kernel before", "/vmlinuz.old", "/initrd.img.old", "");
    format!(
        "set default=0\nset timeout=1\nset timeout_style=countdown\n{}{}if [ -e /vmlinuz.old ]; then\n{previous}fi\n",
        entry("Debian", "/vmlinuz", "/initrd.img", ""),
        entry("Debian, single user", "/vmlinuz", "/initrd.img", " single"),
    )
}

/// The root file system as a file, made of the tree.
fn make_root(input: &Input<'_>, work: &WorkDir, ids: &Ids) -> Result<File> {
    let bytes = root_bytes(&work.path().join(TREE))?;
    let path = work.path().join(ROOT);
    File::create(&path)?.set_len(bytes)?;
    let uuid = ids.root.to_string();
    let seed = ids::uuid(&ids.image, "root directory hashes").to_string();
    let made = input
        .toolbox
        .tool("mke2fs")
        .args(["-q", "-t", "ext4", "-b", &BLOCK.to_string(), "-I", "256", "-m", "1", "-L", "root", "-U", &uuid])
        .args(["-J", &format!("size={JOURNAL_MIB}")])
        // GRUB and older kernels read the root, too.
        .args(["-O", "^metadata_csum_seed,^orphan_file"])
        .args(["-E", &format!("hash_seed={seed},nodiscard,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0")])
        .args(["-d", &format!("{INSIDE}/{TREE}"), &format!("{INSIDE}/{ROOT}")])
        .env("SOURCE_DATE_EPOCH", input.built.to_string())
        .env("E2FSPROGS_FAKE_TIME", input.built.to_string())
        .bind(work.path(), Path::new(INSIDE), true);
    made.run().context("making the root file system")?;
    // The tree is half of what lies in the work folder, and is not needed any more.
    fs_err::remove_dir_all(work.path().join(TREE))?;
    Ok(File::open(path)?)
}

/// Size of a file system that holds the tree.
fn root_bytes(tree: &Path) -> Result<u64> {
    let (mut content, mut inodes) = (0, 0_u64);
    for entry in walkdir::WalkDir::new(tree) {
        let entry = entry?;
        inodes += 1;
        if !entry.file_type().is_symlink() {
            content += entry.metadata()?.len().next_multiple_of(BLOCK);
        }
    }
    // An inode table has one inode for 16 KiB; a directory's or a link's own block is in `content` or in its inode.
    let tables = (content / 16384).max(inodes) * 256;
    Ok((content + content / 50 + tables + JOURNAL_MIB * MIB + SPARE_BYTES).next_multiple_of(MIB))
}

#[cfg(test)]
mod tests {
    use super::{Ids, menu, stub};

    #[test]
    fn both_menus_name_the_root_by_its_uuid() {
        let ids = Ids::of("image");
        let uuid = ids.root.to_string();
        assert!(stub(&ids.root).contains(&uuid));
        insta::assert_snapshot!(menu(&ids.root, "console=tty0 console=ttyS0,115200").replace(&uuid, "UUID"));
    }
}

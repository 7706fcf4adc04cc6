//! Which partition lies where on a disk, as a pure function of sizes.
//!
//! ```text
//! │GPT│1 BIOS│2 ESP      │3 STORE         │5 SITE│ free (becomes 4 DATA on the box)          │GPT│
//! 0   1 MiB  2 MiB                                                                             end
//! ```

use uuid::Uuid;

use super::{gpt, ids};

/// One mebibyte in bytes; every partition starts on a multiple of it.
pub const MIB: u64 = 1 << 20;
const ALIGN: u64 = MIB;
/// Where the room for GRUB's core image begins, on every disk.
pub const BIOS_BOOT_AT: u64 = ALIGN;
/// Room for GRUB's core image.
pub const BIOS_BOOT_BYTES: u64 = MIB;
/// Size of SITE: the smallest that is FAT32 beyond doubt everywhere.
pub const SITE_BYTES: u64 = 64 * MIB;
/// Number of the partition that the box makes in the free space.
pub const DATA_NUMBER: u32 = 4;

/// What is to be laid out; bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// ESP.
    pub esp: u64,
    /// STORE.
    pub store: u64,
    /// Size of the disk; none: as small as possible.
    pub disk: Option<u64>,
    /// Largest size the file may have.
    pub max: Option<u64>,
}

/// A disk laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLayout {
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Identity of the disk.
    pub guid: Uuid,
    /// First partition: GRUB's core image.
    pub bios_boot: gpt::Partition,
    /// Second partition: firmware's and GRUB's files, kernels.
    pub esp: gpt::Partition,
    /// Third partition: the release.
    pub store: gpt::Partition,
    /// Fifth partition: what is particular to one place.
    pub site: gpt::Partition,
}

/// Why sizes cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The content is larger than the user allows.
    #[error(
        "the image needs {} MiB, `maxSize` allows {} MiB\nhint: raise `maxSize`, or remove content: the store takes {} MiB",
        needed.div_ceil(MIB), max / MIB, store.div_ceil(MIB)
    )]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        max: u64,
        /// Bytes of STORE.
        store: u64,
    },
    /// The content does not fit on a disk of the size asked for.
    #[error(
        "the disk is to have {} MiB, the content needs {} MiB\nhint: make the disk larger, it also needs room for DATA",
        disk / MIB, needed.div_ceil(MIB)
    )]
    DiskTooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes asked for.
        disk: u64,
    },
}

/// Lays out a disk of the release `release_id`.
pub fn plan(release_id: &str, sizes: &Sizes) -> Result<DiskLayout, LayoutError> {
    let mut free = BIOS_BOOT_AT;
    let mut take = |number, name: &str, type_guid, bytes: u64, attributes| {
        let start = free;
        free = (start + bytes).next_multiple_of(ALIGN);
        gpt::Partition {
            number,
            name: name.to_owned(),
            type_guid,
            guid: ids::uuid(release_id, name),
            start,
            bytes: free - start,
            attributes,
        }
    };
    let bios_boot = take(1, "BIOS", gpt::TYPE_BIOS_BOOT, BIOS_BOOT_BYTES, 0);
    let esp = take(2, "ESP", gpt::TYPE_ESP, sizes.esp, 0);
    let store = take(3, "STORE", gpt::TYPE_LINUX, sizes.store, gpt::ATTRIBUTE_READ_ONLY);
    let site = take(5, "SITE", gpt::TYPE_BASIC_DATA, SITE_BYTES, 0);
    let needed = free + ALIGN;
    let bytes = sizes.disk.map_or(needed, |disk| disk / ALIGN * ALIGN);
    if bytes < needed {
        return Err(LayoutError::DiskTooSmall { needed, disk: bytes });
    }
    if let Some(max) = sizes.max.filter(|max| *max < bytes) {
        return Err(LayoutError::TooLarge { needed: bytes, max, store: sizes.store });
    }
    Ok(DiskLayout { bytes, guid: ids::uuid(release_id, "disk"), bios_boot, esp, store, site })
}

impl DiskLayout {
    /// The partitions in the order they lie on the disk.
    pub fn partitions(&self) -> [&gpt::Partition; 4] {
        [&self.bios_boot, &self.esp, &self.store, &self.site]
    }

    /// Bytes behind SITE that the box may use for DATA.
    pub fn free_bytes(&self) -> u64 {
        self.bytes - (self.site.start + self.site.bytes) - ALIGN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{ALIGN, DiskLayout, LayoutError, MIB, Sizes, plan};
    use crate::disk::gpt::{BACKUP_SECTORS, PRIMARY_SECTORS, SECTOR};

    fn sizes(esp: u64, store: u64) -> Sizes {
        Sizes { esp, store, disk: None, max: None }
    }

    fn smallest(esp: u64, store: u64) -> DiskLayout {
        plan("release", &sizes(esp, store)).expect("fits")
    }

    proptest! {
        #[test]
        fn partitions_are_aligned_apart_and_within_the_disk(
            esp in 1..1_u64 << 32,
            store in 1..1_u64 << 40,
            more in 0..1_u64 << 40,
        ) {
            let bytes = smallest(esp, store).bytes;
            let layout = plan("release", &Sizes { disk: Some(bytes + more), ..sizes(esp, store) }).expect("fits");
            let mut free = PRIMARY_SECTORS * SECTOR;
            for partition in layout.partitions() {
                prop_assert!(partition.start >= free && partition.start.is_multiple_of(ALIGN));
                prop_assert!(partition.bytes > 0 && partition.bytes.is_multiple_of(ALIGN));
                free = partition.start + partition.bytes;
            }
            prop_assert!(free + BACKUP_SECTORS * SECTOR <= layout.bytes);
            prop_assert!(layout.esp.bytes >= esp && layout.store.bytes >= store);
            prop_assert_eq!(layout.free_bytes(), more / ALIGN * ALIGN);
        }
    }

    #[test]
    fn the_content_decides_the_size_of_the_smallest_disk() {
        // 1 in front, BIOS 1, ESP 128, STORE 300, SITE 64, 1 behind.
        assert_eq!(smallest(128 * MIB, 300 * MIB - 1).bytes, 495 * MIB);
        assert_eq!(smallest(128 * MIB, 300 * MIB).free_bytes(), 0);
    }

    #[test]
    fn a_disk_that_is_too_large_or_too_small_is_an_error_with_numbers() {
        let store = sizes(128 * MIB, 300 * MIB);
        let error = plan("release", &Sizes { max: Some(400 * MIB), ..store.clone() }).expect_err("too large");
        assert_eq!(error, LayoutError::TooLarge { needed: 495 * MIB, max: 400 * MIB, store: 300 * MIB });
        assert!(error.to_string().starts_with("the image needs 495 MiB, `maxSize` allows 400 MiB\nhint: raise"));
        let error = plan("release", &Sizes { disk: Some(494 * MIB), ..store.clone() }).expect_err("too small");
        assert_eq!(error, LayoutError::DiskTooSmall { needed: 495 * MIB, disk: 494 * MIB });
        plan("release", &Sizes { max: Some(495 * MIB), ..store }).expect("just fits");
    }
}

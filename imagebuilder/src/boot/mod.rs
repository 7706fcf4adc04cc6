//! Boot: from firmware to the kernel's first instruction.
//!
//! ```text
//! BIOS disk  boot.img ─▶ core.img ─┐
//! BIOS CD    cdboot.img+core.img ──┼─▶ EFI/debian/grub.cfg ─▶ foothold/boot/<id16>/{vmlinuz,initrd}
//! UEFI       shim ─▶ signed GRUB ──┘
//! ```
//!
//! One `grub.cfg` ([`menu`]) serves disks, sticks and CDs: it finds the kernel by the release's id. shim, GRUB and
//! kernel are Debian's signed ones, so that Secure Boot machines start.

pub mod esp;
pub mod files;
pub mod grub;
pub mod menu;

use std::path::PathBuf;

/// One release that the menu can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// Hex sha256 of the release's `release.json`.
    pub release_id: String,
    /// What the menu shows, such as `edge 1.4.0`.
    pub title: String,
    /// Kernel parameters, without consoles and without `foothold.release`.
    pub parameters: Vec<String>,
    /// Kernel (bzImage, signed) on the host.
    pub kernel: PathBuf,
    /// Initrd on the host.
    pub initrd: PathBuf,
}

impl BootEntry {
    /// The first 16 characters of the release id: the name of its folder under `foothold/boot/`.
    pub fn id16(&self) -> &str {
        self.release_id.get(..16).unwrap_or(&self.release_id)
    }

    /// Path of the kernel on the boot medium, relative.
    pub fn kernel_path(&self) -> String {
        format!("foothold/boot/{}/vmlinuz", self.id16())
    }

    /// Path of the initrd on the boot medium, relative.
    pub fn initrd_path(&self) -> String {
        format!("foothold/boot/{}/initrd", self.id16())
    }
}

/// What the menu offers, and on which consoles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntries {
    /// The release, started by itself.
    pub current: BootEntry,
    /// The release before it, if there is one.
    pub previous: Option<BootEntry>,
    /// Kernel consoles, such as `tty0` and `ttyS0`; the last one becomes `/dev/console`.
    pub consoles: Vec<String>,
}

impl BootEntries {
    /// All entries, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &BootEntry> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

//! Boot: from firmware to the kernel's first instruction.
//!
//! ```text
//! BIOS disk  boot.img ─▶ core.img ─┐
//! BIOS CD    cdboot.img+core.img ──┼─▶ EFI/debian/grub.cfg ─▶ foothold/boot/<id16>/{vmlinuz,initrd}
//! UEFI       shim ─▶ signed GRUB ──┘
//! ```
//!
//! One `grub.cfg` ([`Menu`]) serves disks, sticks and CDs: it finds the kernel by the release's id. shim, GRUB and
//! kernel are Debian's signed ones, so that Secure Boot machines start.

pub mod esp;
pub mod files;
pub mod grub;

use std::path::PathBuf;

use agent_api::menu::{Menu, MenuEntry};

/// One release that the menu can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// What the menu says of it.
    pub entry: MenuEntry,
    /// Kernel (bzImage, signed) on the host.
    pub kernel: PathBuf,
    /// Initrd on the host.
    pub initrd: PathBuf,
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

    /// What GRUB reads.
    pub fn menu(&self) -> Menu {
        Menu {
            current: self.current.entry.clone(),
            previous: self.previous.as_ref().map(|previous| previous.entry.clone()),
            consoles: self.consoles.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_api::menu::{Menu, MenuEntry};

    use crate::disk::Tools as _;
    use crate::disk::testbench::Toolbox;

    #[test]
    fn grub_accepts_the_text() {
        let toolbox = Toolbox::find();
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("grub.cfg");
        let parameters = vec!["a=$b;c".to_owned(), "d=\"e f\"".to_owned()];
        let current = MenuEntry { release_id: "ab".repeat(32), title: "edge 1.4.0".to_owned(), parameters };
        let menu = Menu { current, previous: None, consoles: vec!["tty0".to_owned(), "ttyS0".to_owned()] };
        fs_err::write(&path, menu.grub_cfg().expect("a menu")).expect("writes");
        toolbox.check(&["grub-script-check", path.to_str().expect("UTF-8")]);
        assert!(toolbox.file("usr/bin/grub-script-check").exists());
    }
}

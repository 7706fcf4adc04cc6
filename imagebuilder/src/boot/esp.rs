//! What lies in the EFI system partition.

use agent_api::menu::MenuError;
use fs_err as fs;

use super::{BootEntries, BootEntry};
use crate::disk::{Content, SourceFile, Tools};

/// Where `grub.cfg` lies: the prefix that Debian's signed GRUB was built with.
pub const GRUB_CFG: &str = "EFI/debian/grub.cfg";

/// Debian's signed programs: path in the toolbox, path in the ESP, whether it may be missing.
const SIGNED: [(&str, &str, bool); 3] = [
    ("usr/lib/shim/shimx64.efi.signed", "EFI/BOOT/BOOTX64.EFI", false),
    ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "EFI/BOOT/grubx64.efi", false),
    // Asks whether to trust another key; only there when the helpers are installed.
    ("usr/lib/shim/mmx64.efi.signed", "EFI/BOOT/mmx64.efi", true),
];

/// Why the ESP's files cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum EspError {
    /// A file is missing; the error names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The menu cannot be written.
    #[error(transparent)]
    Menu(#[from] MenuError),
}

/// What firmware and GRUB need: signed programs and the menu.
pub fn loader_files(entries: &BootEntries, tools: &dyn Tools) -> Result<Vec<SourceFile>, EspError> {
    let mut files = signed_files(tools)?;
    let menu = entries.menu().grub_cfg()?.into_bytes();
    files.push(SourceFile { path: GRUB_CFG.to_owned(), content: Content::Bytes(menu) });
    Ok(files)
}

/// The signed programs alone.
pub fn signed_files(tools: &dyn Tools) -> std::io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for (in_tree, path, optional) in SIGNED {
        let source = tools.file(in_tree);
        if optional && !source.exists() {
            continue;
        }
        let bytes = fs::metadata(&source)?.len();
        files.push(SourceFile { path: path.to_owned(), content: Content::File { path: source, bytes } });
    }
    Ok(files)
}

/// Kernel and initrd of every entry, at the paths the menu names.
pub fn kernel_files(entries: &BootEntries) -> Result<Vec<SourceFile>, EspError> {
    let mut files = Vec::new();
    for entry in entries.all() {
        for (path, source) in pair(entry) {
            let bytes = fs::metadata(source)?.len();
            files.push(SourceFile { path, content: Content::File { path: source.clone(), bytes } });
        }
    }
    Ok(files)
}

fn pair(entry: &BootEntry) -> [(String, &std::path::PathBuf); 2] {
    [(entry.entry.kernel_path(), &entry.kernel), (entry.entry.initrd_path(), &entry.initrd)]
}

//! Firmware of the machine: which files of the toolbox it takes.

use serde::{Deserialize, Serialize};

use crate::tools::{Tools, ToolsError};

/// What the machine starts with. All run on the q35 machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// `SeaBIOS`.
    #[default]
    Bios,
    /// OVMF, Secure Boot not available.
    Uefi,
    /// OVMF with Secure Boot enforced and Microsoft's certificates enrolled: only signed loaders start.
    /// The variable store is guarded by system management mode.
    UefiSecureBoot,
}

/// Firmware as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirmwareFiles {
    /// QEMU finds `SeaBIOS` on its ROM path.
    Bios,
    /// Two flash chips: code (shared, read-only), and variables, of which each machine has its own copy.
    Flash { code: String, vars: String, secure: bool },
}

impl Firmware {
    /// The files in the toolbox; `vars` is the template.
    pub(crate) fn files(self, tools: &Tools) -> Result<FirmwareFiles, ToolsError> {
        let (code, vars, secure) = match self {
            Self::Bios => return Ok(FirmwareFiles::Bios),
            Self::Uefi => ("usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd", false),
            Self::UefiSecureBoot => {
                ("usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "usr/share/OVMF/OVMF_VARS_4M.ms.fd", true)
            }
        };
        Ok(FirmwareFiles::Flash { code: tools.file(code)?, vars: tools.file(vars)?, secure })
    }
}

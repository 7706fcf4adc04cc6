//! Loading kernel modules.

use std::ffi::CString;
use std::io;
use std::path::Path;

use fs_err::File;

/// Loads one uncompressed module; one that is there already is fine.
pub fn load(path: &Path, parameters: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let parameters = CString::new(parameters)?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

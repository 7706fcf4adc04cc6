//! Files by path, whatever file system they lie in.

use std::cell::RefCell;
use std::io;

use ext4_view::{Ext4, Ext4Error};
use hadris_fat::sync::FatFs;
use hadris_fs::sync::{File, FileSystem, Volume};
use hadris_fs::{FileType, MountOptions, OpenOptions};

use super::bytes::{Blocks, Bytes, Disk};

/// A file system, read-only. Paths are relative, `/` between the parts.
pub trait Tree {
    /// Names in a folder, sorted; none when it is not there.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Whether there is a folder of that name.
    fn is_folder(&self, path: &str) -> io::Result<bool>;
    /// A file; `None` when it is not there.
    fn open(&self, path: &str) -> io::Result<Option<Box<dyn Bytes>>>;
}

/// The FAT file system of a partition, or of an image of one.
pub fn fat(partition: Disk) -> io::Result<Box<dyn Tree>> {
    let fat = FatFs::mount(Blocks(partition), MountOptions::new().read_only());
    Ok(Box::new(Volume::new(fat.map_err(|error| plain(error.into_error()))?)))
}

impl Tree for Ext4 {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match self.read_dir(&format!("/{folder}")) {
            Err(Ext4Error::NotFound | Ext4Error::NotADirectory) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().display().to_string());
        }
        Ok(visible(names))
    }

    fn is_folder(&self, path: &str) -> io::Result<bool> {
        match self.metadata(&format!("/{path}")) {
            Err(Ext4Error::NotFound | Ext4Error::NotADirectory) => Ok(false),
            found => Ok(found?.is_dir()),
        }
    }

    fn open(&self, path: &str) -> io::Result<Option<Box<dyn Bytes>>> {
        match Ext4::open(self, &format!("/{path}")) {
            Err(Ext4Error::NotFound | Ext4Error::NotADirectory) => Ok(None),
            file => Ok(Some(Box::new(Ext4File(RefCell::new(file?))))),
        }
    }
}

fn visible(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

struct Ext4File(RefCell<ext4_view::File>);

impl Bytes for Ext4File {
    fn size(&self) -> u64 {
        self.0.borrow().metadata().len()
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut file = self.0.borrow_mut();
        if file.position() != at {
            file.seek_to(at)?;
        }
        let mut done = 0;
        while done < buffer.len() {
            match file.read_bytes(&mut buffer[done..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }
}

impl<F: FileSystem<DeviceError = io::Error> + 'static> Tree for Volume<F> {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        if !self.exists(folder).map_err(plain)? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in self.read_dir(folder).map_err(plain)? {
            names.push(String::from_utf8_lossy(entry.map_err(plain)?.name().as_bytes()).into_owned());
        }
        Ok(visible(names))
    }

    fn is_folder(&self, path: &str) -> io::Result<bool> {
        Ok(self.exists(path).map_err(plain)? && self.metadata(path).map_err(plain)?.file_type() == FileType::Dir)
    }

    fn open(&self, path: &str) -> io::Result<Option<Box<dyn Bytes>>> {
        if !self.exists(path).map_err(plain)? {
            return Ok(None);
        }
        let file = Volume::open(self, path, OpenOptions::new().read()).map_err(plain)?;
        let size = file.metadata().map_err(plain)?.len();
        Ok(Some(Box::new(VolumeFile { file, size })))
    }
}

/// The disk's own error says it best; without one the file system has something to say.
pub fn plain(error: hadris_fs::Error<io::Error>) -> io::Error {
    if error.device_error().is_none() {
        return error.into();
    }
    error.into_device_error().unwrap_or_else(|| io::ErrorKind::Other.into())
}

struct VolumeFile<F: FileSystem> {
    file: File<F>,
    size: u64,
}

impl<F: FileSystem<DeviceError = io::Error>> Bytes for VolumeFile<F> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(at + done as u64, &mut buffer[done..]).map_err(plain)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }
}

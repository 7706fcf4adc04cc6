//! From the blobs of a medium to mounted layers, and from them to a root.

use std::path::{Path, PathBuf};

use agent_api::boot::{CONTAINERS, HOST, LAYERS};
use agent_api::release::{Layer, MEDIUM_ROOT};
use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use super::fatal::Fatal;
use super::kmsg::{self, KernelDamage};
use super::release::WRITE_AGAIN;
use crate::host::dm::{self, Verity};
use crate::host::loopdev::{self, Access, LoopDevice};
use crate::host::mount::{self, MountOptions};

/// Where the new root is put together.
pub const SYSROOT: &str = "/sysroot";
/// Upper and work folder of the root's overlay.
const VOLATILE: &str = "/run/foothold/root";
/// Bytes of a data block of verity.
const BLOCK: u32 = 4096;

/// A layer behind verity, as the guard needs it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenLayer {
    /// Name of the layer.
    pub name: String,
    /// `/dev/loopN`: the blob.
    pub loop_device: PathBuf,
    /// `/dev/dm-N`: its bytes, verified.
    pub verified: PathBuf,
    /// Bytes of the verified device.
    pub bytes: u64,
    /// Device that holds the store, such as `vda3`.
    pub medium: String,
}

impl OpenLayer {
    /// Where it is mounted.
    pub fn mounted_at(&self) -> PathBuf {
        Path::new(LAYERS).join(&self.name)
    }

    /// Whether a damage that the kernel reported lies in this layer, and in which block.
    pub fn block_of(&self, damage: &KernelDamage) -> Option<u64> {
        let name = self.loop_device.file_name()?.to_str()?;
        match damage {
            // Blocks of the tree are counted from the start of the device, too.
            KernelDamage::Verity { device, block, .. } => {
                (name.strip_prefix("loop")? == device.strip_prefix("7:")?).then_some(*block)
            }
            KernelDamage::Io { device, sector } => (device == name).then_some(sector * 512 / u64::from(BLOCK)),
        }
    }

    /// One line that names the layer, the block and the device.
    pub fn damage_line(&self, block: u64, unreadable: bool) -> String {
        let (name, medium) = (&self.name, &self.medium);
        if unreadable {
            return format!(
                "layer `{name}` on {medium} cannot be read at block {block}: the device is failing or gone"
            );
        }
        format!("layer `{name}` on {medium} is damaged: block {block} is not what was signed")
    }
}

/// Path of a layer's blob on the mounted medium.
fn blob(root: &Path, layer: &Layer) -> PathBuf {
    root.join(MEDIUM_ROOT).join(layer.digest.store_path())
}

/// Checks that every layer's blob is there and whole in length.
pub fn check_sizes(root: &Path, layers: &[Layer], device: &str) -> Result<(), Fatal> {
    for layer in layers {
        let expected = format!("{} bytes", layer.size);
        let found = match fs_err::metadata(blob(root, layer)) {
            Ok(found) if found.len() == layer.size => continue,
            Ok(found) => format!("layer `{}` on {device} has only {} bytes: a cut-off image", layer.name, found.len()),
            Err(error) => format!("layer `{}` is not on {device}: {}", layer.name, error.kind()),
        };
        return Err(Fatal::medium("layers", found, &expected, WRITE_AGAIN));
    }
    Ok(())
}

/// Opens all layers, bottom first. The loop devices stay attached as long as they are mounted.
pub fn open_all(root: &Path, layers: &[Layer], medium: &str) -> Result<Vec<OpenLayer>, Fatal> {
    layers.iter().map(|layer| open(root, layer, medium)).collect()
}

fn open(root: &Path, layer: &Layer, medium: &str) -> Result<OpenLayer, Fatal> {
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        let found = format!("layer `{}` on {medium}: {what}: {error}", layer.name);
        Fatal::medium("layers", found, "a layer that can be opened", WRITE_AGAIN)
    };
    let device = loopdev::attach(&blob(root, layer), BLOCK, Access::Read { direct: true })
        .map_err(|error| fail("no loop device", &error))?;
    let verified = verified(layer, &device).map_err(|error| fail("verity", &error))?;
    let open = OpenLayer {
        name: layer.name.clone(),
        loop_device: device.path.clone(),
        verified,
        bytes: layer.data_bytes,
        medium: medium.to_owned(),
    };
    let source = open.verified.to_string_lossy().into_owned();
    mount::mount("squashfs", &source, &open.mounted_at(), MountOptions::new(MountFlags::RDONLY, ""))
        .map_err(|error| damage_in(&open).unwrap_or_else(|| fail("mounting", &mount::cause(&error))))?;
    Ok(open)
}

fn verified(layer: &Layer, device: &LoopDevice) -> std::io::Result<PathBuf> {
    let (root_hash, salt) = (layer.root_hash.as_str(), layer.salt.as_str());
    let verity = Verity { device: &device.path, data_bytes: layer.data_bytes, root_hash, salt };
    dm::open_verity(&format!("foothold-{}", layer.name), &verity)
}

/// The damage of this layer that the kernel reported, if it did.
pub fn damage_in(layer: &OpenLayer) -> Option<Fatal> {
    let of_this = |damage: &KernelDamage| Some((layer.block_of(damage)?, matches!(damage, KernelDamage::Io { .. })));
    let (block, unreadable) = kmsg::reported().iter().rev().find_map(of_this)?;
    let found = layer.damage_line(block, unreadable);
    Some(Fatal::medium("layers", found, "the bytes that were signed", WRITE_AGAIN))
}

/// Puts the root together: the layers read-only, above them memory.
pub fn mount_root(layers: &[OpenLayer]) -> Result<(), Fatal> {
    let fail = |error: &dyn std::fmt::Display| {
        Fatal::medium(
            "root",
            error.to_string(),
            "an overlay of all layers",
            "report it: this is not the medium's fault",
        )
    };
    let upper = Path::new(VOLATILE);
    mount::mount("tmpfs", "root", upper, MountOptions::new(MountFlags::empty(), "mode=0755,size=25%"))
        .map_err(|error| fail(&error))?;
    for folder in ["upper", "work"] {
        fs_err::create_dir_all(upper.join(folder)).map_err(|error| fail(&error))?;
    }
    let in_root = layers.iter().rev().filter_map(|layer| in_root(layer, layer.mounted_at()));
    let lower: Vec<String> = in_root.map(|folder| folder.to_string_lossy().into_owned()).collect();
    let data = format!("lowerdir={},upperdir={VOLATILE}/upper,workdir={VOLATILE}/work", lower.join(":"));
    mount::mount("overlay", "root", Path::new(SYSROOT), MountOptions::new(MountFlags::empty(), &data)).map_err(
        |error| {
            layers.iter().find_map(damage_in).unwrap_or_else(|| fail(&format!("{error}: {}", mount::cause(&error))))
        },
    )
}

/// What of a mounted layer is part of the root. Of the images' layer it is one folder, if it has that: all else containerd
/// takes from the mount itself.
fn in_root(layer: &OpenLayer, mounted: PathBuf) -> Option<PathBuf> {
    if layer.name != CONTAINERS {
        return Some(mounted);
    }
    Some(mounted.join(HOST)).filter(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use agent_api::release::{Digest, Layer};

    use super::{OpenLayer, blob, check_sizes, in_root};

    #[test]
    fn of_the_images_only_the_programs_of_the_box_are_in_the_root() {
        let mounted = tempfile::tempdir().expect("a folder");
        let of = |name: &str| {
            let (loop_device, verified, medium) = (PathBuf::new(), PathBuf::new(), String::new());
            let layer = OpenLayer { name: name.to_owned(), loop_device, verified, bytes: 0, medium };
            in_root(&layer, mounted.path().to_owned())
        };
        assert_eq!((of("os"), of("containers")), (Some(mounted.path().to_owned()), None));
        fs_err::create_dir(mounted.path().join("host")).expect("a folder");
        assert_eq!(of("containers"), Some(mounted.path().join("host")));
    }

    #[test]
    fn a_failing_device_is_told_from_changed_bytes() {
        let layer = OpenLayer {
            name: "os".to_owned(),
            loop_device: PathBuf::from("/dev/loop0"),
            verified: PathBuf::from("/dev/dm-0"),
            bytes: 8192,
            medium: "sda3".to_owned(),
        };
        assert_eq!(layer.damage_line(7, false), "layer `os` on sda3 is damaged: block 7 is not what was signed");
        let gone = "layer `os` on sda3 cannot be read at block 7: the device is failing or gone";
        assert_eq!(layer.damage_line(7, true), gone);
    }

    #[test]
    fn a_short_or_missing_layer_is_named_with_its_device() {
        let root = tempfile::tempdir().expect("a folder");
        let digest = Digest::from_hex(&"ab".repeat(32)).expect("a digest");
        let (root_hash, salt) = (String::new(), String::new());
        let layer = Layer { name: "os".to_owned(), digest, size: 8192, data_bytes: 4096, root_hash, salt };
        let layers = [layer];
        let missing = check_sizes(root.path(), &layers, "vda3").expect_err("it is not there");
        assert_eq!(missing.found, "layer `os` is not on vda3: entity not found");
        let path = blob(root.path(), &layers[0]);
        fs_err::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs_err::write(&path, [0; 4096]).expect("written");
        let short = check_sizes(root.path(), &layers, "vda3").expect_err("half of it is missing");
        assert_eq!(short.found, "layer `os` on vda3 has only 4096 bytes: a cut-off image");
        fs_err::write(&path, [0; 8192]).expect("written");
        assert!(check_sizes(root.path(), &layers, "vda3").is_ok());
    }
}

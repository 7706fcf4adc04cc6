//! The end of every layer: squashfs, padding and dm-verity tree as one blob.

use agent_api::release::{Blob, Layer};
use anyhow::{Context, Result};

use super::squashfs::{self, Packing};
use super::verity;
use crate::store::{Cache, Made, WorkDir};
use crate::toolbox::Toolbox;

/// Name under which a stage keeps its layer's facts.
const FACT: &str = "layer";

/// Packs `<work>/<tree>` and records it as the layer `name` in `made`.
pub fn seal(
    cache: &Cache,
    toolbox: &Toolbox,
    work: &WorkDir,
    tree: &str,
    name: &str,
    packing: &Packing,
    made: &mut Made,
) -> Result<()> {
    let file = format!("{name}.squashfs");
    squashfs::make(toolbox, work, tree, &file, packing)?;
    let path = work.path().join(&file);
    fs_err::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let verity =
        verity::append(&path, &verity::salt_for(name)).with_context(|| format!("hashing the layer `{name}`"))?;
    let blob = cache.adopt(&path)?;
    made.set_fact(
        FACT,
        &Layer {
            name: name.to_owned(),
            digest: blob.digest.clone(),
            size: blob.size,
            data_bytes: verity.data_bytes,
            root_hash: verity.root_hash,
            salt: verity.salt,
        },
    )?;
    made.files.insert(name.to_owned(), blob);
    Ok(())
}

/// The layer that a stage made.
pub fn layer_of(made: &Made) -> Result<Layer> {
    made.fact(FACT)
}

/// The layer's blob.
pub fn blob_of(layer: &Layer) -> Blob {
    Blob { digest: layer.digest.clone(), size: layer.size }
}

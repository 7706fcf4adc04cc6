//! What the node reads: the release's manifest, the files that it serves, and files of services. A box has them on its
//! medium and in its layers.

use std::collections::BTreeMap;

use agent_api::release::{Blob, ContentFile, ContentKind, Digest, MEDIUM_ROOT, Release};
use anyhow::Result;

use super::parts::{Part, Parts};
use super::{Folder, Input, MEDIUM};

/// Writes it below `medium/`.
pub fn write(input: &Input<'_>, folder: &mut Folder) -> Result<()> {
    let release = release(input.release, input.parts);
    let content = release.content.iter().filter_map(ContentFile::blob);
    let images =
        release.images.iter().filter(|_| input.parts.has(Part::Registry)).flat_map(|image| image.blobs.clone());
    let blobs: BTreeMap<Digest, Blob> = content.chain(images).map(|blob| (blob.digest.clone(), blob)).collect();
    for blob in blobs.values() {
        folder.blob(&format!("{MEDIUM}/{MEDIUM_ROOT}/{}", blob.digest.store_path()), input.cache, blob)?;
    }
    for (name, blob) in &input.exports.files {
        folder.blob(&format!("{MEDIUM}/services/{name}"), input.cache, blob)?;
    }
    folder.write(&format!("{MEDIUM}/release.json"), &serde_json::to_vec_pretty(&release)?)?;
    Ok(())
}

/// The release as these parts need it: no layer, nothing to boot, every file in the store.
fn release(whole: &Release, parts: &Parts) -> Release {
    let mut release = whole.clone();
    (release.layers, release.boot, release.packages) = (Vec::new(), Vec::new(), Vec::new());
    (release.install, release.data) = (None, Vec::new());
    let all = parts.has(Part::Registry);
    release.content.retain(|file| all || (parts.has(Part::BareMetalHost) && file.kind == ContentKind::Netboot));
    for file in &mut release.content {
        file.within = None;
    }
    release
}

#[cfg(test)]
mod tests {
    use agent_api::release::{Blob, ContentFile, ContentKind, Digest, InLayer, Layer, Release};

    use super::release;
    use crate::export::parts::{Part, Printed, choose};

    #[test]
    fn nothing_of_it_lies_in_a_layer_and_a_part_has_only_what_it_serves() {
        let blob = |text: &str| Blob { digest: Digest::of(text), size: 1 };
        let file = |path: &str, kind| ContentFile::stored(path, kind, &blob(path));
        let within = Some(InLayer { layer: "kubernetes".to_owned(), path: "usr/bin/kubelet".to_owned() });
        let whole = Release {
            layers: vec![Layer {
                name: "os".to_owned(),
                digest: Digest::of("os"),
                size: 1,
                data_bytes: 1,
                root_hash: String::new(),
                salt: String::new(),
            }],
            content: vec![
                ContentFile { within, ..file("kubernetes/v1/kubelet", ContentKind::Kubernetes) },
                file("netboot/a.kernel", ContentKind::Netboot),
            ],
            ..Release::default()
        };
        let names = ["baremetalhost", "registry", "node"];
        let printed = names.map(|name| Printed {
            name: name.to_owned(),
            images: Vec::new(),
            definitions: Vec::new(),
            objects: Vec::new(),
        });
        let of = |parts: &[Part]| release(&whole, &choose(printed.to_vec(), parts, "a.yaml".as_ref()).expect("parts"));
        let all = of(&[]);
        assert_eq!((all.layers.len(), all.content.len()), (0, 2));
        assert!(all.content.iter().all(|file| file.blob().is_some()));
        let servers: Vec<String> = of(&[Part::BareMetalHost]).content.into_iter().map(|file| file.path).collect();
        assert_eq!(servers, ["netboot/a.kernel"]);
    }
}

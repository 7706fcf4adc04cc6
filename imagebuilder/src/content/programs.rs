//! Which programs a definition asks for beside those of every box: only then are they compiled.
//!
//! ```text
//! recipes of services, the ramdisk, OS images, the user's images; what servers of a cluster lack ─► names ─► sets
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::clusters;
use super::images::recipe;
use crate::config::{Appliance, OsImageSource, ServiceName};
use crate::kubernetes::modules::{ModuleSet, ON_DEMAND};
use crate::oci::service;
use crate::osimage::recipe::Recipe;
use crate::ramdisk::Ramdisk;

/// The sets that have a program which something of the definition names. `images`: where the builder's recipes are.
pub fn on_demand(images: &Path, appliance: &Appliance) -> Result<Vec<&'static ModuleSet>> {
    let names = names(images, appliance)?;
    let asked = |set: &&ModuleSet| set.programs.iter().any(|program| names.contains(*program));
    Ok(ON_DEMAND.iter().filter(asked).collect())
}

/// All programs that are named.
fn names(images: &Path, appliance: &Appliance) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for image in service::declared(images, &appliance.services)? {
        names.extend(image.programs().map(str::to_owned));
    }
    if let Some(ramdisk) = Ramdisk::declared(images, &appliance.services)? {
        names.extend(ramdisk.recipe.programs.into_values());
    }
    for image in &appliance.content.os_images {
        if let OsImageSource::Recipe { directory, .. } = &image.source {
            names.extend(Recipe::read(directory)?.programs.into_values());
        }
    }
    for image in &appliance.content.images {
        names.extend(recipe::programs(image)?);
    }
    if appliance.services.has(ServiceName::Clusters) {
        names.extend(clusters::PROGRAMS.map(str::to_owned));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agent_api::release::Storage;

    use super::on_demand;
    use crate::config::{self, Services};
    use crate::kubernetes::modules::ON_DEMAND;
    use crate::oci::service;

    #[test]
    fn programs_are_compiled_only_for_what_asks_for_them() {
        let node = "content: { osImages: [ { name: node, from: ../images/os/debian-node } ] }\n";
        let rescue = "content: { osImages: [ { name: rescue, from: ../images/os/rescue } ] }\n";
        let provisioning = "services: { provisioning: { interface: { name: ens4 } } }\n";
        let clusters = "services: { provisioning: { interface: { name: ens4 } }, clusters: {} }\n";
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("services: { metrics: {} }\n", &["metrics-server"]),
            ("services: { storage: {} }\n", &["local-path-provisioner"]),
            (rescue, &[]),
            (provisioning, &[]),
            (node, &["cri-tools", "cni-flannel"]),
            (clusters, &["helm", "flannel", "cri-tools", "runc", "cni-flannel"]),
        ];
        for (more, expected) in cases {
            let text = format!(
                "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: edge, version: 1.4.0 }}\n{more}"
            );
            let appliance = config::check(Path::new("appliance.yaml"), text).appliance.expect("a definition");
            let sets = on_demand(Path::new("../images"), &appliance).expect("recipes");
            assert_eq!(sets.iter().map(|set| set.name).collect::<Vec<_>>(), expected, "{more}");
        }
    }

    #[test]
    fn images_of_one_program_have_the_version_of_its_module_as_their_tag() {
        let services = Services { metrics: true, storage: Some(Storage { share_percent: 50 }), ..Services::default() };
        let declared = service::declared(Path::new("../images"), &services).expect("recipes");
        assert_eq!(declared.len(), 2);
        for image in declared {
            let program = image.programs().next().expect("a program");
            let set = ON_DEMAND.iter().find(|set| set.programs == [program]).expect("a set of its own");
            let version = set.version(Path::new("../packages")).expect("a version");
            assert!(image.recipe.reference.ends_with(&format!(":{version}")), "{}", image.recipe.reference);
        }
    }

    #[test]
    fn an_image_of_the_users_own_may_name_them_too() {
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir(dir.path().join("app")).expect("a folder");
        fs_err::write(dir.path().join("app/image.yaml"), "files: { /crictl: \"module:crictl\" }\n").expect("written");
        let text = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.4.0 }\n\
                    content: { images: [ { name: \"a.example/app:1\", from: app } ] }\n";
        let checked = config::check(&dir.path().join("appliance.yaml"), text.to_owned());
        let appliance = checked.appliance.unwrap_or_else(|| panic!("{}", checked.problems));
        let sets = on_demand(Path::new("../images"), &appliance).expect("recipes");
        assert_eq!(sets.iter().map(|set| set.name).collect::<Vec<_>>(), ["cri-tools"]);
    }
}

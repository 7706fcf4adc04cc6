//! Images of a release of Kubernetes that clusters of servers may have and the box itself does not run.
//!
//! ```text
//! kubeadm of that release ─ its list ─┬─ kube-apiserver, ...     ─► made of that release's programs
//!                                     └─ etcd, CoreDNS, pause   ─► the box's own, under the names of the list
//! ```
//! So kubeadm of any release finds what it looks for, and its configuration needs no other tags.

use agent_api::release::Image;
use anyhow::{Context, Result, ensure};

use crate::layer::containers::{packages_of, unpacked};
use crate::lock::Deb;
use crate::oci::recipe::{Kitchen, Recipe};
use crate::rootfs::programs::place;
use crate::store::{Cache, Made, StageKey, hash};
use crate::toolbox::Toolbox;

/// Name of the fact of the stage.
const IMAGES: &str = "images";

/// What the images are made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Programs of the release.
    pub programs: &'a Made,
    /// Recipes of the box's own images.
    pub recipes: &'a [Recipe],
    /// The box's own images.
    pub own: &'a [Image],
    /// Debian packages that recipes may unpack: the set `os`.
    pub debs: &'a [Deb],
    /// The release.
    pub version: &'a str,
    /// Build time.
    pub built: u64,
    /// Brings packages into the cache that are not there.
    pub fetch: &'a dyn Fn(&[Deb]) -> Result<()>,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Makes them, or takes them from the cache. Fact `images`; their blobs are files of the stage.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let mut key = StageKey::new("cluster-images", 1)
        .with("version", input.version)
        .with("built", input.built)
        .with("recipes", hash::bytes(&serde_json::to_vec(input.recipes)?));
    for (name, blob) in &input.programs.files {
        key = key.with(name, &blob.digest);
    }
    for image in input.own {
        key = key.with(&image.reference, &image.manifest);
    }
    let unpacked = unpacked(input.debs, input.recipes.iter().filter(|recipe| is_of_kubernetes(recipe)))?;
    for deb in &unpacked {
        key = key.with(&deb.name, &deb.sha256);
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        (input.fetch)(&unpacked)?;
        let kubeadm = work.path().join("kubeadm");
        place(input.cache, input.programs, "kubeadm", &kubeadm)?;
        let list = ["config", "images", "list", "--kubernetes-version", input.version];
        let list = input.toolbox.tool(&kubeadm.to_string_lossy()).args(list).reads(&kubeadm).run()?;
        let list = String::from_utf8(list).context("kubeadm's list of images")?;
        let (cache, programs, built, version) = (input.cache, input.programs, input.built, input.version);
        let kitchen = Kitchen { cache, programs, built, version };
        let (mut made, mut images) = (Made::default(), Vec::new());
        for wanted in wanted(&list, input.version, input.recipes, input.own)? {
            let image = match wanted {
                Wanted::Made(recipe) => kitchen.make(work, recipe, None, &packages_of(input.debs, recipe)?)?.image,
                Wanted::Renamed(image) => image,
            };
            made.files.extend(image.blobs.iter().map(|blob| (format!("blob {}", blob.digest.hex()), blob.clone())));
            images.push(image);
        }
        made.set_fact(IMAGES, &images)?;
        Ok(made)
    })
}

/// The images that the stage made.
pub fn images(made: &Made) -> Result<Vec<Image>> {
    made.fact(IMAGES).context("the images of another release of Kubernetes")
}

/// How an image of kubeadm's list comes about.
#[derive(Debug, PartialEq)]
enum Wanted<'a> {
    /// By this recipe, of the release's own programs.
    Made(&'a Recipe),
    /// The box has it, under another tag.
    Renamed(Image),
}

/// What of kubeadm's list the box does not have yet.
fn wanted<'a>(list: &str, version: &str, recipes: &'a [Recipe], own: &[Image]) -> Result<Vec<Wanted<'a>>> {
    let mut all = Vec::new();
    for reference in list.split_whitespace() {
        if own.iter().any(|image| image.reference == reference) {
            continue;
        }
        if let Some(recipe) = recipes.iter().find(|recipe| recipe.reference_for(version) == reference) {
            all.push(Wanted::Made(recipe));
            continue;
        }
        let named = |image: &&Image| name_of(&image.reference) == name_of(reference);
        let image = own.iter().find(named).with_context(|| {
            format!("kubeadm of {version} runs `{reference}`, and the box has no image of that name")
        })?;
        all.push(Wanted::Renamed(Image { reference: reference.to_owned(), ..image.clone() }));
    }
    let expected = recipes.iter().filter(|recipe| is_of_kubernetes(recipe)).count();
    let made = all.iter().filter(|wanted| matches!(wanted, Wanted::Made(_))).count();
    ensure!(
        made == expected,
        "kubeadm of {version} lists {made} images of Kubernetes' own, expected {expected}:\n{list}"
    );
    Ok(all)
}

/// Whether the image has the version of Kubernetes.
fn is_of_kubernetes(recipe: &Recipe) -> bool {
    recipe.reference != recipe.reference_for("")
}

/// A reference without its tag.
fn name_of(reference: &str) -> &str {
    reference.rsplit_once(':').map_or(reference, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agent_api::release::Image;

    use super::{Wanted, wanted};
    use crate::oci::recipe::Recipe;
    use crate::store::hash;

    const LIST: &str = "registry.k8s.io/kube-apiserver:v1.35.8\nregistry.k8s.io/kube-controller-manager:v1.35.8\n\
        registry.k8s.io/kube-scheduler:v1.35.8\nregistry.k8s.io/kube-proxy:v1.35.8\n\
        registry.k8s.io/coredns/coredns:v1.13.1\nregistry.k8s.io/pause:3.10.1\nregistry.k8s.io/etcd:3.6.6-0\n";

    fn own(recipes: &[Recipe]) -> Vec<Image> {
        let of = |recipe: &Recipe| {
            let reference = recipe.reference_for("v1.36.4");
            let manifest = hash::bytes(reference.as_bytes());
            Image { reference, index: None, inner: Vec::new(), manifest, blobs: Vec::new() }
        };
        recipes.iter().map(of).collect()
    }

    #[test]
    fn kubeadm_finds_everything_by_the_names_that_it_has_for_it() {
        let recipes = Recipe::read_all(Path::new("../images")).expect("recipes");
        let own = own(&recipes);
        let all = wanted(LIST, "v1.35.8", &recipes, &own).expect("all are there");
        let told: Vec<String> = all
            .iter()
            .map(|wanted| match wanted {
                Wanted::Made(recipe) => format!("made {}", recipe.reference_for("v1.35.8")),
                Wanted::Renamed(image) => {
                    let same = own.iter().find(|own| own.manifest == image.manifest).expect("an own one");
                    format!("{} is {}", image.reference, same.reference)
                }
            })
            .collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn what_the_box_has_already_is_not_there_twice_and_what_it_lacks_is_named() {
        let recipes = Recipe::read_all(Path::new("../images")).expect("recipes");
        let own = own(&recipes);
        let pause = own.iter().find(|image| image.reference.contains("/pause:")).expect("it").reference.clone();
        let same = LIST.replace("registry.k8s.io/pause:3.10.1", &pause);
        let all = wanted(&same, "v1.35.8", &recipes, &own).expect("all are there");
        assert!(!all.iter().any(|one| matches!(one, Wanted::Renamed(image) if image.reference.contains("pause"))));
        let more = format!("{LIST}registry.k8s.io/strange:1\n");
        let error = wanted(&more, "v1.35.8", &recipes, &own).expect_err("nobody has it").to_string();
        assert!(error.contains("`registry.k8s.io/strange:1`"), "{error}");
        let less = LIST.replace("registry.k8s.io/kube-proxy:v1.35.8\n", "");
        let error = wanted(&less, "v1.35.8", &recipes, &own).expect_err("one is not there").to_string();
        assert!(error.contains("lists 3 images of Kubernetes' own, expected 4"), "{error}");
    }
}

//! Recipes of `images/os/<name>/os-image.yaml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::config::Console;
use crate::rootfs::inside;

/// Name of a recipe in its folder.
pub const FILE: &str = "os-image.yaml";

/// `os-image.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recipe {
    /// Debian packages beside those that every Debian system has; what they depend on comes along. A kernel and
    /// `initramfs-tools` must be among them.
    pub packages: Vec<String>,
    /// Programs of the release: path in the image -> name.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Folders laid over the root in this order, relative to the recipe: the path there is the path in the image.
    #[serde(default)]
    pub overlays: Vec<PathBuf>,
    /// Kernel consoles such as `tty0` and `ttyS0`; the last one becomes `/dev/console`.
    pub consoles: Vec<String>,
    /// More kernel parameters.
    #[serde(default)]
    pub kernel_parameters: Vec<String>,
}

impl Recipe {
    /// Reads the recipe of a folder.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let text = fs_err::read_to_string(&path)?;
        let options = serde_saphyr::options! { strict_booleans: true };
        let recipe: Self = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| anyhow::anyhow!("`{}`: {}", path.display(), agent_api::yaml::told_with_lines(&error)))?;
        recipe.check().with_context(|| format!("reading `{}`", path.display()))?;
        Ok(recipe)
    }

    fn check(&self) -> Result<()> {
        for console in &self.consoles {
            console.parse::<Console>().with_context(|| format!("reading the console `{console}`"))?;
        }
        ensure!(!self.consoles.is_empty(), "there is no console\nhint: `consoles: [tty0, ttyS0]`");
        for path in self.programs.keys() {
            ensure!(
                inside(Path::new(path)),
                "`{path}` is not a path in the image\nhint: write it without a leading `/`"
            );
        }
        let plain = |word: &String| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(word) = self.kernel_parameters.iter().find(|word| !plain(word)) {
            anyhow::bail!("`{word}` is not a kernel parameter\nhint: one word each, such as `quiet`");
        }
        Ok(())
    }

    /// What the kernel is started with, less the root file system.
    pub fn command_line(&self) -> String {
        let consoles = self.consoles.iter().map(|name| format!("console={name}"));
        self.kernel_parameters.iter().cloned().chain(consoles).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FILE, Recipe};
    use crate::builder::package_names;

    fn read(text: &str) -> anyhow::Result<Recipe> {
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::write(dir.path().join(FILE), text).expect("written");
        Recipe::read(dir.path())
    }

    #[test]
    fn the_recipes_of_this_workspace_are_right() {
        let of_the_box = package_names(Path::new("../packages/kernel/packages.txt")).expect("a list");
        let firmware = |packages: &[String]| {
            packages.iter().filter(|name| name.starts_with("firmware-")).cloned().collect::<Vec<_>>()
        };
        for name in ["debian-node", "rescue"] {
            let directory = Path::new("../images/os").join(name);
            let recipe = Recipe::read(&directory).expect("a recipe");
            assert!(recipe.packages.is_sorted(), "{name}: sort the packages");
            assert!(recipe.packages.iter().any(|package| package.starts_with("linux-image-")), "{name}: no kernel");
            // A server must see with its own system the devices that it showed to the ramdisk.
            assert_eq!(firmware(&recipe.packages), firmware(&of_the_box), "{name}");
            assert!(
                recipe.overlays.iter().all(|overlay| directory.join(overlay).is_dir()),
                "{name}: an overlay is missing"
            );
        }
    }

    #[test]
    fn a_recipe_that_cannot_be_meant_is_refused() {
        let head = "packages: [udev]\nconsoles: [tty0]\n";
        read(head).expect("right");
        for (more, said) in [
            ("programs: { /usr/bin/x: x }\n", "leading `/`"),
            ("programs: { ../x: x }\n", "not a path"),
            ("kernelParameters: [\"a b\"]\n", "kernel parameter"),
            ("pakages: []\n", "pakages"),
        ] {
            let error = format!("{:#}", read(&format!("{head}{more}")).expect_err(more));
            assert!(error.contains(said), "{error}");
        }
        let error = format!("{:#}", read("packages: []\nconsoles: [com1/x]\n").expect_err("a console"));
        assert!(error.contains("com1"), "{error}");
    }
}

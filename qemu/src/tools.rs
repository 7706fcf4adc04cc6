//! QEMU and its firmware, from a toolbox tree.
//!
//! The tree is a Debian root folder. Its programs are started through its own dynamic loader and
//! libraries: no chroot, no root, and the child's pid is QEMU's own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{Invocation, RunError};

/// Fetching and unpacking some 200 packages.
const MAKE_WITHIN: Duration = Duration::from_secs(1800);

/// Debian's folder of libraries for this architecture.
const LIB: &str = "usr/lib/x86_64-linux-gnu";

/// What is wrong with the toolbox.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// It was not there and could not be made.
    #[error("making the toolbox ({missing})")]
    Make {
        /// What was missing.
        missing: String,
        /// Why it could not be made.
        source: RunError,
    },
    /// A file the runner needs is not in the tree.
    #[error("the toolbox `{root}` has no `{file}`\nhint: run `cargo foothold up` once, it makes the toolbox anew")]
    Missing {
        /// The tree.
        root: PathBuf,
        /// Path inside it.
        file: &'static str,
    },
    /// There is no toolbox at all.
    #[error("no toolbox at `{0}`\nhint: run `cargo foothold toolbox` or set FOOTHOLD_TOOLBOX")]
    NotFound(PathBuf),
    /// Paths end up in JSON and in QEMU's options.
    #[error("the toolbox path `{0}` is not UTF-8")]
    NotUtf8(PathBuf),
}

/// A toolbox tree that has what is needed to run a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    root: PathBuf,
}

impl Tools {
    /// Files without which no machine starts. Firmware is checked when it is asked for.
    const NEEDED: [&str; 5] = [
        "usr/lib64/ld-linux-x86-64.so.2",
        "usr/bin/qemu-system-x86_64",
        "usr/bin/qemu-img",
        "usr/share/qemu/pxe-virtio.rom",
        "usr/share/seabios/bios-256k.bin",
    ];

    /// Takes the tree at `root`, after looking whether the programs are there.
    pub fn from_toolbox(root: &Path) -> Result<Self, ToolsError> {
        let absent = |_| ToolsError::NotFound(root.to_owned());
        let root = fs_err::canonicalize(root).map_err(absent)?;
        if root.to_str().is_none() {
            return Err(ToolsError::NotUtf8(root));
        }
        let tools = Self { root };
        for file in Self::NEEDED {
            tools.file(file)?;
        }
        Ok(tools)
    }

    /// Finds the toolbox of this user: `FOOTHOLD_TOOLBOX`, else `foothold/toolbox/current` in the cache
    /// folder (`XDG_CACHE_HOME`, else `~/.cache`). For tests; programs pass the tree they made.
    pub fn locate() -> Result<Self, ToolsError> {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = || {
            let base = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
            base.unwrap_or_default().join("foothold/toolbox/current")
        };
        Self::from_toolbox(&var("FOOTHOLD_TOOLBOX").unwrap_or_else(cache))
    }

    /// [`Tools::locate`] for tests: where there is no toolbox yet, the workspace's own `foothold toolbox` makes it.
    pub fn locate_or_make() -> Result<Self, ToolsError> {
        Self::locate().or_else(|missing| Self::make(&missing))
    }

    /// [`Tools::locate_or_make`], and how a program of the tree is called. A tree from before the program was in the
    /// list of the toolbox is made anew.
    pub fn program_or_make(program: &'static str) -> Result<Vec<String>, ToolsError> {
        let ask = |tools: Self| {
            tools.file(program)?;
            let Invocation { program, arguments, .. } = tools.invocation(program, []);
            Ok([program].into_iter().chain(arguments).collect())
        };
        Self::locate().and_then(ask).or_else(|missing| Self::make(&missing).and_then(ask))
    }

    fn make(missing: &ToolsError) -> Result<Self, ToolsError> {
        let make = Invocation {
            program: std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()),
            arguments: ["run", "--quiet", "--package", "foothold", "--bin", "foothold", "--", "toolbox"]
                .map(str::to_owned)
                .to_vec(),
            ..Invocation::default()
        };
        make.run("foothold toolbox", MAKE_WITHIN)
            .map_err(|source| ToolsError::Make { missing: missing.to_string(), source })?;
        Self::locate()
    }

    /// The tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The absolute path of a file that must be in the tree.
    pub(crate) fn file(&self, file: &'static str) -> Result<String, ToolsError> {
        let path = self.root.join(file);
        if path.exists() {
            Ok(path.to_string_lossy().into_owned())
        } else {
            Err(ToolsError::Missing { root: self.root.clone(), file })
        }
    }

    /// `qemu-system-x86_64` with `arguments`.
    pub(crate) fn qemu(&self, arguments: impl IntoIterator<Item = String>) -> Invocation {
        // ROMs are looked up in the order of -L: Debian keeps SeaBIOS apart from the other ROMs.
        let roms = ["usr/share/qemu", "usr/share/seabios"];
        let roms = roms.iter().flat_map(|dir| ["-L".to_owned(), self.path(dir)]);
        self.invocation("usr/bin/qemu-system-x86_64", roms.chain(arguments))
    }

    /// `qemu-img` with `arguments`.
    pub(crate) fn qemu_img(&self, arguments: impl IntoIterator<Item = String>) -> Invocation {
        self.invocation("usr/bin/qemu-img", arguments)
    }

    /// Another program of the tree with `arguments`.
    pub(crate) fn program(
        &self,
        program: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Invocation, ToolsError> {
        self.file(program)?;
        Ok(self.invocation(program, arguments))
    }

    fn invocation(&self, program: &str, arguments: impl IntoIterator<Item = String>) -> Invocation {
        let library_path = format!("{}:{}/pulseaudio", self.path(LIB), self.path(LIB));
        let loader = [
            // The host's ld.so.cache describes other libraries.
            "--inhibit-cache".to_owned(),
            "--library-path".to_owned(),
            library_path,
            self.path(program),
        ];
        Invocation {
            program: self.path(Self::NEEDED[0]),
            arguments: loader.into_iter().chain(arguments).collect(),
            environment: vec![("QEMU_MODULE_DIR".to_owned(), self.path(&format!("{LIB}/qemu")))],
            nice: 0,
        }
    }

    fn path(&self, inside: &str) -> String {
        self.root.join(inside).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tree_and_missing_file_say_what_to_do() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let error = Tools::from_toolbox(&dir.path().join("none")).expect_err("no tree");
        assert!(error.to_string().ends_with("hint: run `cargo foothold toolbox` or set FOOTHOLD_TOOLBOX"));
        let error = Tools::from_toolbox(dir.path()).expect_err("empty tree");
        assert!(error.to_string().contains("has no `usr/lib64/ld-linux-x86-64.so.2`"), "{error}");
    }

    #[test]
    fn programs_run_through_the_loader_of_the_tree() {
        let dir = tempfile::tempdir().expect("temporary folder");
        for file in Tools::NEEDED {
            let path = dir.path().join(file);
            fs_err::create_dir_all(path.parent().expect("has a parent")).expect("making folders");
            fs_err::write(path, "").expect("writing");
        }
        let root = fs_err::canonicalize(dir.path()).expect("exists").display().to_string();
        let run = Tools::from_toolbox(dir.path()).expect("complete").qemu(["-S".to_owned()]);
        assert_eq!(run.program, format!("{root}/usr/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(
            run.arguments[3..].join(" "),
            format!("{root}/usr/bin/qemu-system-x86_64 -L {root}/usr/share/qemu -L {root}/usr/share/seabios -S")
        );
    }
}

//! The toolbox for tests: its programs run on the host through the tree's own dynamic loader.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ToolError, Tools};

/// A toolbox tree.
pub(crate) struct Toolbox {
    root: PathBuf,
}

impl Toolbox {
    /// The tree of `FOOTHOLD_TOOLBOX`, or the current one of the user's cache.
    pub(crate) fn find() -> Self {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let current = || cache().map(|cache| cache.join("foothold/toolbox/current"));
        let root = std::env::var_os("FOOTHOLD_TOOLBOX").map(PathBuf::from).or_else(current).unwrap_or_default();
        if !root.join("usr/bin/qemu-img").exists()
            && let Err(error) = foothold_qemu::Tools::locate_or_make()
        {
            panic!("no toolbox at `{}`: {error:?}", root.display());
        }
        let root = root.canonicalize().unwrap_or(root);
        assert!(
            root.join("usr/bin/qemu-img").exists(),
            "no toolbox at `{}`\nhint: `cargo foothold build` makes one, or name a tree in FOOTHOLD_TOOLBOX",
            root.display()
        );
        Self { root }
    }

    /// Runs a tool and returns what it printed; panics with that when it fails.
    pub(crate) fn check(&self, argv: &[&str]) -> String {
        match self.run(argv, &[]) {
            Ok(output) => String::from_utf8_lossy(&output).into_owned(),
            Err(error) => panic!("{argv:?}: {error}"),
        }
    }

    /// Paths into the tree lie under its root on the host.
    fn host_argument(&self, argument: &str) -> String {
        let inside = argument.strip_prefix("/usr/").map(|rest| self.root.join("usr").join(rest));
        inside.filter(|path| path.exists()).map_or_else(|| argument.to_owned(), |path| path.display().to_string())
    }
}

impl Tools for Toolbox {
    #[expect(clippy::disallowed_methods, reason = "the tests' own door to foreign tools")]
    fn run(&self, argv: &[&str], _binds: &[&Path]) -> Result<Vec<u8>, ToolError> {
        let fail = |reason: String| ToolError { tool: argv[0].to_owned(), reason };
        let folders = ["usr/bin", "usr/sbin"].map(|folder| self.root.join(folder).join(argv[0]));
        let program = folders.iter().find(|path| path.exists()).ok_or_else(|| fail("not in the toolbox".to_owned()))?;
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|dir| self.root.join(dir));
        let output = Command::new(self.root.join("lib64/ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(libraries.map(|dir| dir.display().to_string()).join(":"))
            .arg(program)
            .args(argv[1..].iter().map(|argument| self.host_argument(argument)))
            .output()
            .map_err(|error| fail(error.to_string()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = [output.stdout, output.stderr].concat();
        Err(fail(format!("{}: {}", output.status, String::from_utf8_lossy(&text))))
    }

    fn file(&self, path_in_tree: &str) -> PathBuf {
        self.root.join(path_in_tree)
    }
}

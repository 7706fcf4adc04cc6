//! The toolbox: a Debian trixie tree that holds every foreign tool the builder calls.
//!
//! ```text
//! lock's package set `toolbox` --(host's mmdebstrap, once)--> <cache>/toolbox/<key>/ --> Toolbox::run
//! ```
//! The same versions work on every host. The tree is complete when its marker exists; a half-made one is
//! made anew.

pub mod bootstrap;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::host::command::{Run, RunError, Running};
use crate::host::enter::{Bind, ENTER, EnterSpec};
use crate::host::{needs, userns};

/// An entered tree: either the toolbox or one that is being made.
#[derive(Clone, Debug)]
pub struct Toolbox {
    tree: PathBuf,
    helper: PathBuf,
}

impl Toolbox {
    /// The toolbox in that tree. `helper` is the `foothold` program, which does the mounts.
    pub fn at(tree: &Path, helper: &Path) -> Self {
        Self { tree: tree.to_owned(), helper: helper.to_owned() }
    }

    /// The tree, for reading files out of it.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// A program of the toolbox.
    pub fn tool(&self, program: &str) -> Tool<'_> {
        Tool {
            toolbox: self,
            spec: EnterSpec {
                tree: self.tree.clone(),
                binds: Vec::new(),
                cwd: "/".into(),
                argv: vec![program.to_owned()],
            },
            env: Vec::new(),
            stdin: None,
        }
    }
}

/// A call of a program in the toolbox.
#[derive(Clone, Debug)]
pub struct Tool<'a> {
    toolbox: &'a Toolbox,
    spec: EnterSpec,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
}

impl Tool<'_> {
    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.spec.argv.push(arg.as_ref().to_string_lossy().into_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.spec.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()));
        self
    }

    /// A path that is visible inside, read-only, where it is outside.
    #[must_use]
    pub fn reads(self, path: &Path) -> Self {
        self.bind(path, path, false)
    }

    /// A path that is visible and writable inside, where it is outside.
    #[must_use]
    pub fn writes(self, path: &Path) -> Self {
        self.bind(path, path, true)
    }

    /// A path that is visible inside at another place.
    #[must_use]
    pub fn bind(mut self, from: &Path, to: &Path, writable: bool) -> Self {
        self.spec.binds.push(Bind { from: from.to_owned(), to: to.to_owned(), writable });
        self
    }

    /// Working directory inside.
    #[must_use]
    pub fn cwd(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.spec.cwd);
        self
    }

    /// One more environment variable. Nothing of the host's environment is inherited.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.env.push((key.to_owned(), value.into()));
        self
    }

    /// What the program reads on its standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// The host's name service and certificate authorities, and how it reaches registries: for clients of them.
    #[must_use]
    pub fn with_network(mut self) -> Self {
        for file in ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"] {
            let path = Path::new(file);
            if path.exists() && self.toolbox.tree.join(&file[1..]).exists() {
                self = self.reads(path);
            }
        }
        for key in NETWORK_ENV {
            if let Ok(value) = std::env::var(key) {
                self = self.env(key, value);
            }
        }
        self
    }

    /// Runs it to its end and returns its standard output.
    pub fn run(self) -> Result<Vec<u8>, RunError> {
        self.prepare()?.output()
    }

    /// Like [`Tool::run`], and hands every line of error output to `on_line`.
    pub fn run_with(self, on_line: &mut (dyn FnMut(&str) + Send)) -> Result<Vec<u8>, RunError> {
        self.prepare()?.output_with(on_line)
    }

    /// Starts it; dropping the handle ends it and everything it started.
    pub fn start(self) -> Result<Running, RunError> {
        self.prepare()?.start()
    }

    fn prepare(self) -> Result<Run, RunError> {
        let spec = serde_json::to_string(&self.spec).map_err(|_| self.not_text())?;
        let mut run = Run::new("unshare").args(["--mount", "--pid", "--fork", "--kill-child"]);
        if !needs::is_root() {
            run = run.args(userns::MAP);
        }
        run = run.shown_as(self.spec.argv.join(" "));
        run = run.args(["--"]).arg(&self.toolbox.helper).arg(ENTER).arg(spec).clear_env();
        run = run.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        run = run.env("HOME", "/tmp").env("TZ", "UTC0");
        for (key, value) in &self.env {
            run = run.env(key, value);
        }
        Ok(match self.stdin {
            Some(bytes) => run.stdin(bytes),
            None => run,
        })
    }

    /// A path of it is no text, and what is entered is told as text.
    fn not_text(&self) -> RunError {
        let EnterSpec { tree, binds, cwd, argv } = &self.spec;
        let paths = binds.iter().flat_map(|bind| [&bind.from, &bind.to]).chain([tree, cwd]);
        let path = paths.into_iter().find(|path| path.to_str().is_none()).unwrap_or(tree);
        let why = format!("the name of `{}` is no UTF-8\nhint: rename it, or work in another folder", path.display());
        let program = argv.first().cloned().unwrap_or_default();
        RunError::Start { program, source: std::io::Error::new(std::io::ErrorKind::InvalidInput, why) }
    }
}

/// Settings of the host's registry clients that the same clients need inside.
const NETWORK_ENV: &[&str] = &[
    "GOPROXY",
    "GONOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GOPRIVATE",
    "GOINSECURE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// The toolbox as `disk` and `format` see it.
#[derive(Debug)]
pub struct ImageTools<'a> {
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Build time, for tools that ask for the time.
    pub time: u64,
}

impl crate::disk::Tools for ImageTools<'_> {
    fn run(&self, argv: &[&str], binds: &[&Path]) -> Result<Vec<u8>, crate::disk::ToolError> {
        let mut tool = self.toolbox.tool(argv[0]).args(&argv[1..]).env("SOURCE_DATE_EPOCH", self.time.to_string());
        for path in binds {
            tool = tool.writes(path);
        }
        let tool_name = argv[0].to_owned();
        tool.run().map_err(|error| crate::disk::ToolError { tool: tool_name, reason: error.to_string() })
    }

    fn file(&self, path_in_tree: &str) -> PathBuf {
        self.toolbox.tree.join(path_in_tree.trim_start_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::Toolbox;

    #[test]
    fn a_path_that_is_no_text_is_told() {
        let path = Path::new(OsStr::from_bytes(b"/home/jos\xe9/charts"));
        let toolbox = Toolbox::at(Path::new("/nowhere"), Path::new("/bin/true"));
        let error = toolbox.tool("ls").reads(path).run().expect_err("it cannot be entered");
        let told = format!("{:#}", anyhow::Error::from(error));
        let expected = "starting `ls`: the name of `/home/jos\u{fffd}/charts` is no UTF-8\nhint: rename it, or work in \
                        another folder";
        assert_eq!(told, expected);
    }
}

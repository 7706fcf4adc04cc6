//! Cluster software from pinned Go modules: `go build tool` in the toolbox, every byte checked by `go.sum`.
//!
//! Each folder `packages/<set>/` holds a `go.mod` with only `tool` lines, replaces and checksums, and for a program that
//! is put together otherwise than its project does, `<program>/main.go`: which parts of the modules it has.

use std::path::Path;

use agent_api::release::Digest;
use anyhow::{Context, Result, bail};

use crate::config::KubernetesSource;
use crate::store::{Cache, Made, StageKey, hash};
use crate::toolbox::Toolbox;

/// A set of programs built from one `go.mod`.
#[derive(Clone, Copy, Debug)]
pub struct ModuleSet {
    /// Folder below `packages/`.
    pub name: &'static str,
    /// Module whose version is the set's.
    pub module: &'static str,
    /// Programs it makes, by the names that they have here.
    pub programs: &'static [&'static str],
    /// The one program that is all of them, each under its name, if they are not built apart.
    pub one: Option<&'static str>,
    /// Programs that `go build` names otherwise: the name here, the name there.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Build tags of a set that needs a C compiler. What it makes is linked statically, C library included: it runs on
    /// any Linux.
    pub with_c: Option<&'static str>,
}

/// What most sets are like.
const PLAIN: ModuleSet = ModuleSet { name: "", module: "", programs: &[], one: None, renamed: &[], with_c: None };

/// Kubernetes' own programs: the set that may come from elsewhere ([`super::binaries`]).
pub const KUBERNETES: ModuleSet = ModuleSet {
    name: "kubernetes",
    module: "k8s.io/kubernetes",
    programs: &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubeadm",
        "kubectl",
        "kubelet",
    ],
    one: Some("kubernetes"),
    ..PLAIN
};

/// Other releases of Kubernetes than the box's own that clusters of servers may have: one of each earlier minor that is pinned.
pub const OTHERS: &[ModuleSet] = &[ModuleSet { name: "kubernetes-1.35", ..KUBERNETES }];

/// The set that has such a release: `v1.35.8` is in `kubernetes-1.35`.
pub fn other(version: &str) -> Option<&'static ModuleSet> {
    let (minor, _) = version.trim_start_matches('v').rsplit_once('.')?;
    OTHERS.iter().find(|set| set.name.strip_prefix("kubernetes-") == Some(minor))
}

/// All sets, the longest build first.
pub const SETS: &[ModuleSet] = &[
    KUBERNETES,
    ModuleSet { name: "coredns", module: "github.com/coredns/coredns", programs: &["coredns"], ..PLAIN },
    ModuleSet {
        name: "containerd",
        module: "github.com/containerd/containerd/v2",
        programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
        ..PLAIN
    },
    ModuleSet { name: "registry", module: "github.com/distribution/distribution/v3", programs: &["registry"], ..PLAIN },
    ModuleSet { name: "etcd", module: "go.etcd.io/etcd/server/v3", programs: &["server", "etcdctl"], ..PLAIN },
    ModuleSet {
        name: "cni",
        module: "github.com/containernetworking/plugins",
        programs: &["bridge", "host-local", "loopback", "portmap"],
        ..PLAIN
    },
];

/// Sets that are built only for a definition that asks for one of their programs, the longest build first.
pub const ON_DEMAND: &[ModuleSet] = &[
    HELM,
    ModuleSet { name: "metrics-server", module: "sigs.k8s.io/metrics-server", programs: &["metrics-server"], ..PLAIN },
    ModuleSet {
        name: "local-path-provisioner",
        module: "github.com/rancher/local-path-provisioner",
        programs: &["local-path-provisioner"],
        ..PLAIN
    },
    FLANNEL,
    ModuleSet { name: "cri-tools", module: "sigs.k8s.io/cri-tools", programs: &["crictl"], ..PLAIN },
    ModuleSet {
        name: "runc",
        module: "github.com/opencontainers/runc",
        programs: &["runc"],
        with_c: Some("netgo osusergo seccomp"),
        ..PLAIN
    },
    ModuleSet {
        name: "cni-flannel",
        module: "github.com/containernetworking/plugins",
        programs: &["flannel"],
        ..PLAIN
    },
];

/// The network between the nodes of a cluster.
pub const FLANNEL: ModuleSet = ModuleSet {
    name: "flannel",
    module: "github.com/flannel-io/flannel",
    programs: &["flanneld", "flannel-install-conf"],
    one: None,
    renamed: &[("flanneld", "flannel"), ("flannel-install-conf", "install_conf")],
    with_c: Some("netgo osusergo"),
};

/// Renders charts while an image is built, and installs them on clusters of servers.
pub const HELM: ModuleSet = ModuleSet { name: "helm", module: "helm.sh/helm/v4", programs: &["helm"], ..PLAIN };

/// The sets that are built when Kubernetes' own programs come from there.
pub fn of(source: &KubernetesSource) -> impl Iterator<Item = &'static ModuleSet> {
    let all = *source == KubernetesSource::Modules;
    SETS.iter().filter(move |set| all || set.name != KUBERNETES.name)
}

/// Version of a module in the text of a `go.mod`.
pub fn version_in(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next().map(str::to_owned))?
    })
}

impl ModuleSet {
    /// Version of the set, such as `v1.36.4`.
    pub fn version(&self, packages: &Path) -> Result<String> {
        let path = packages.join(self.name).join("go.mod");
        let text = fs_err::read_to_string(&path)?;
        version_in(&text, self.module).with_context(|| format!("`{}` requires no `{}`", path.display(), self.module))
    }

    /// Digest of the set's files: what the lock holds.
    pub fn digest(&self, packages: &Path) -> Result<Digest> {
        let mut text = Vec::new();
        for file in self.files(packages) {
            text.extend(fs_err::read(packages.join(self.name).join(file))?);
        }
        Ok(hash::bytes(&text))
    }

    /// What says how the set is built, in its folder.
    fn files(&self, packages: &Path) -> Vec<String> {
        let own = self.programs.iter().copied().chain(self.one).map(|program| format!("{program}/main.go"));
        let own = own.filter(|file| packages.join(self.name).join(file).exists());
        ["go.mod", "go.sum"].map(str::to_owned).into_iter().chain(own).collect()
    }

    /// Linker flags: no debug information, and the version where the program says it.
    fn linker_flags(&self, version: &str) -> Result<String> {
        let mut flags = "-s -w -buildid=".to_owned();
        let mut set = |name: &str, value: &str| flags.extend([" -X ", name, "=", value]);
        match self.name {
            _ if self.module == KUBERNETES.module => {
                let parsed = semver::Version::parse(version.trim_start_matches('v'))
                    .with_context(|| format!("version `{version}` of Kubernetes"))?;
                for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                    set(&format!("{package}.gitVersion"), version);
                    set(&format!("{package}.gitMajor"), &parsed.major.to_string());
                    set(&format!("{package}.gitMinor"), &parsed.minor.to_string());
                    set(&format!("{package}.gitTreeState"), "clean");
                }
            }
            "local-path-provisioner" => set("main.VERSION", version),
            "metrics-server" => set("k8s.io/client-go/pkg/version.gitVersion", version),
            "helm" => set("helm.sh/helm/v4/internal/version.version", version),
            "containerd" => set("github.com/containerd/containerd/v2/version.Version", version),
            "registry" => set("github.com/distribution/distribution/v3/version.version", version),
            "flannel" => set("github.com/flannel-io/flannel/pkg/version.Version", version),
            "cri-tools" => set("sigs.k8s.io/cri-tools/pkg/version.Version", version),
            _ => {}
        }
        if self.with_c.is_some() {
            flags.push_str(" -linkmode external -extldflags -static");
        }
        Ok(flags)
    }

    /// Builds the set, or takes it from the cache.
    pub fn build(&self, at: &Build<'_>) -> Result<(Made, bool)> {
        let version = self.version(at.packages)?;
        let digest = self.digest(at.packages)?;
        if digest != *at.locked {
            bail!(
                "`packages/{}` ({}) is {digest}, the lock expects {}\nhint: `foothold lock --update`",
                self.name,
                self.files(at.packages).join(", "),
                at.locked
            );
        }
        let flags = self.linker_flags(&version)?;
        let mut key = StageKey::new("modules", 2).with("set", self.name).with("modules", &digest).with("flags", &flags);
        if let Some(tags) = self.with_c {
            // Its compiler and C library are the toolbox's.
            key = key.with("tags", tags).with("toolbox", at.toolbox.tree().file_name().unwrap_or_default().display());
        }
        at.cache.stage(&key, &mut || (at.waiting)("another build is compiling the same"), |work| {
            let (source, out) = (at.packages.join(self.name), work.path().join("out"));
            fs_err::create_dir(&out)?;
            let copy = work.path().join("source");
            fs_err::create_dir(&copy)?;
            for file in self.files(at.packages) {
                let to = copy.join(&file);
                fs_err::create_dir_all(to.parent().unwrap_or(&copy))?;
                fs_err::copy(source.join(file), to)?;
            }
            self.go_build(at, &copy, &out, &flags)?;
            let mut made = Made::default();
            let adopt =
                |built: &str| at.cache.adopt(&out.join(built)).with_context(|| format!("`go build` made no `{built}`"));
            let one = self.one.map(adopt).transpose()?;
            for program in self.programs {
                let blob = one.clone().map_or_else(|| adopt(self.built_as(program)), Ok)?;
                made.files.insert((*program).to_owned(), blob);
            }
            made.set_fact("version", &version)?;
            Ok(made)
        })
    }

    /// The name that `go build` gives what a program is in.
    fn built_as(&self, program: &'static str) -> &'static str {
        if let Some(one) = self.one {
            return one;
        }
        self.renamed.iter().find(|(here, _)| *here == program).map_or(program, |(_, there)| there)
    }

    fn go_build(&self, at: &Build<'_>, source: &Path, out: &Path, flags: &str) -> Result<()> {
        let go = at.cache.path("go");
        for dir in ["mod", "build"] {
            fs_err::create_dir_all(go.join(dir))?;
        }
        let mut tool = at
            .toolbox
            .tool("go")
            .args(["build", "-trimpath", "-mod=readonly", "-tags", self.with_c.unwrap_or_default()])
            .args(["-ldflags", flags, "-o"])
            .arg(format!("{}/", out.display()))
            .arg("tool")
            .cwd(source)
            .reads(source)
            .writes(out)
            .writes(&go)
            .env("CGO_ENABLED", if self.with_c.is_some() { "1" } else { "0" })
            .env("GOAMD64", "v1")
            .env("GOMODCACHE", go.join("mod").to_string_lossy())
            .env("GOCACHE", go.join("build").to_string_lossy())
            .env("GOFLAGS", "-buildvcs=false -modcacherw");
        if at.offline {
            tool = tool.env("GOPROXY", "off").env("GONOSUMDB", "*");
        } else {
            tool = tool.with_network();
        }
        let offline_hint = if at.offline { "\nhint: `--offline` was given: build once without it" } else { "" };
        tool.run_with(&mut |line| (at.waiting)(line))
            .with_context(|| format!("compiling the Go modules of `packages/{}`{offline_hint}", self.name))?;
        Ok(())
    }
}

/// What a build of a module set needs.
pub struct Build<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox, whose `go` fetches the toolchain that `go.mod` names.
    pub toolbox: &'a Toolbox,
    /// The folder `packages/`.
    pub packages: &'a Path,
    /// What the lock says the set is.
    pub locked: &'a Digest,
    /// Never use the network.
    pub offline: bool,
    /// Told what goes on.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{FLANNEL, KUBERNETES, ModuleSet, ON_DEMAND, OTHERS, PLAIN, SETS, other, version_in};

    #[test]
    fn the_version_is_that_of_the_required_module() {
        let text = "module x\n\nrequire (\n\ta.example/b v1.2.3 // indirect\n)\nrequire k8s.io/kubernetes v1.36.4\n";
        assert_eq!(version_in(text, "k8s.io/kubernetes").as_deref(), Some("v1.36.4"));
        assert_eq!(version_in(text, "a.example/b").as_deref(), Some("v1.2.3"));
        assert_eq!(version_in(text, "c"), None);
    }

    #[test]
    fn a_program_of_ones_own_is_locked_and_built_and_a_strange_file_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let set = ModuleSet { name: "set", module: "a.example/b", programs: &["program"], ..PLAIN };
        let write = |file: &str, text: &str| {
            let path = dir.path().join("set").join(file);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, text).expect("written");
            (set.files(dir.path()), set.digest(dir.path()).expect("a digest"))
        };
        fs_err::create_dir(dir.path().join("set")).expect("made");
        fs_err::write(dir.path().join("set/go.sum"), "sums").expect("written");
        let before = write("go.mod", "module x");
        assert_eq!(before.0, ["go.mod", "go.sum"]);
        assert_eq!(write("settings.yaml", "of a program"), before);
        let after = write("program/main.go", "package main");
        assert_eq!(after.0, ["go.mod", "go.sum", "program/main.go"]);
        assert_ne!(after.1, before.1);
        assert_ne!(write("program/main.go", "package main // else").1, after.1);
    }

    #[test]
    fn kubernetes_says_its_version() {
        let flags = SETS[0].linker_flags("v1.36.4").expect("flags");
        assert!(flags.contains("k8s.io/component-base/version.gitMinor=36"), "{flags}");
    }

    #[test]
    fn the_folders_of_this_workspace_name_their_module_and_no_two_programs_have_one_name() {
        let mut names = BTreeSet::new();
        for set in SETS.iter().chain(ON_DEMAND) {
            let packages = Path::new("../packages");
            let version = set.version(packages).expect(set.name);
            assert!(version.starts_with('v'), "{}: {version}", set.name);
            let go_mod = fs_err::read_to_string(packages.join(set.name).join("go.mod")).expect("a go.mod");
            let tools: Vec<&str> = go_mod.lines().map(|line| line.trim().trim_end_matches("/v3")).collect();
            for program in set.programs {
                assert!(names.insert(*program), "`{program}` is a program of two sets");
                let built = format!("/{}", set.built_as(program));
                assert!(tools.iter().any(|tool| tool.ends_with(&built)), "{}: {program}", set.name);
            }
        }
    }

    #[test]
    fn other_releases_of_kubernetes_are_built_as_the_own_one_is() {
        let packages = Path::new("../packages");
        let own = KUBERNETES.version(packages).expect("a version");
        for set in OTHERS {
            let version = set.version(packages).expect(set.name);
            let minor = version.rsplit_once('.').map_or("", |(minor, _)| minor);
            assert_eq!(other(&version).map(|set| set.name), Some(set.name));
            assert_ne!(minor, own.rsplit_once('.').map_or("", |(minor, _)| minor));
            // The same program puts it together.
            assert_eq!(set.files(packages), KUBERNETES.files(packages), "{}", set.name);
            let flags = set.linker_flags(&version).expect("flags");
            assert!(flags.contains(&format!("k8s.io/component-base/version.gitVersion={version}")), "{flags}");
        }
    }

    #[test]
    fn what_needs_a_c_compiler_is_linked_statically_and_says_its_version() {
        let flags = FLANNEL.linker_flags("v0.28.10").expect("flags");
        assert!(flags.contains("pkg/version.Version=v0.28.10"), "{flags}");
        assert!(flags.ends_with("-linkmode external -extldflags -static"), "{flags}");
        let flags = |name: &str, version: &str| {
            let set = ON_DEMAND.iter().find(|set| set.name == name).expect("a set");
            set.linker_flags(version).expect("flags")
        };
        assert!(flags("cri-tools", "v1.37.0").ends_with("version.Version=v1.37.0"));
        // It holds its version itself.
        assert!(!flags("runc", "v1.5.2").contains(" -X "));
    }
}

//! The repository of `content.packages.debian` before its users: the real apt, with nothing changed but its folders.
//!
//! The packages are made here, so that no mirror is asked.

use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use foothold::content::debian::Repository;
use foothold::host::command::Run;
use foothold::lock::Deb;
use foothold::release::openpgp::Key;
use foothold::store::{Cache, Made};
use foothold::toolbox::Toolbox;

/// Where the test's folder is for programs of the toolbox.
const INSIDE: &str = "/mnt/test";
/// Date of the repository.
const MADE: u64 = 1_760_000_000;

struct Bench {
    dir: tempfile::TempDir,
    cache: Cache,
    debs: Vec<Deb>,
    toolbox: PathBuf,
}

impl Bench {
    /// Two packages, one needing the other.
    fn new() -> Self {
        let toolbox = foothold_qemu::Tools::locate_or_make().expect("a toolbox").root().to_owned();
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let mut bench = Self { dir, cache, debs: Vec::new(), toolbox };
        bench.add("site-tool", "1:2.0-1", "site-data (= 1.0+b1)");
        bench.add("site-data", "1.0+b1", "");
        bench
    }

    fn add(&mut self, name: &str, version: &str, depends: &str) {
        let tree = self.dir.path().join(name);
        fs_err::create_dir_all(tree.join("DEBIAN")).expect("folders");
        fs_err::create_dir_all(tree.join("usr/share/site")).expect("folders");
        fs_err::write(tree.join("usr/share/site").join(name), version).expect("a file");
        let depends = if depends.is_empty() { String::new() } else { format!("Depends: {depends}\n") };
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\n{depends}\
             Description: {name}\n More of it.\n"
        );
        fs_err::write(tree.join("DEBIAN/control"), control).expect("a file");
        let deb = self.dir.path().join("made.deb");
        Run::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&tree).arg(&deb).output().expect("a package");
        let blob = self.cache.adopt(&deb).expect("adopted");
        self.debs.push(Deb {
            name: name.into(),
            version: version.into(),
            architecture: "all".into(),
            sha256: blob.digest,
            size: blob.size,
        });
    }

    fn make(&self, key: &Key) -> Made {
        let repository = Repository { cache: &self.cache, debs: &self.debs, made: MADE, waiting: &|_| () };
        repository.make(key, &|_| Ok(())).expect("a repository").0
    }

    /// Lays the repository out as a server shows it, and empty folders for apt.
    fn publish(&self, made: &Made) {
        for (path, blob) in &made.files {
            let target = self.served(path);
            fs_err::create_dir_all(target.parent().expect("a folder")).expect("folders");
            fs_err::copy(self.cache.blob_path(&blob.digest), &target).expect("copied");
        }
        for folder in
            ["state/lists/partial", "cache/archives/partial", "root/var/lib/dpkg/updates", "root/var/lib/dpkg/info"]
        {
            fs_err::create_dir_all(self.dir.path().join(folder)).expect("folders");
        }
        fs_err::write(self.dir.path().join("root/var/lib/dpkg/status"), "").expect("a file");
        let source = format!("deb [signed-by={INSIDE}/debian/foothold.asc] file:{INSIDE}/debian trixie main\n");
        fs_err::write(self.dir.path().join("sources.list"), source).expect("a file");
    }

    fn served(&self, path: &str) -> PathBuf {
        self.dir.path().join("debian").join(path)
    }

    /// Runs apt-get with folders of its own; what it printed on both streams, or the error.
    fn apt(&self, arguments: &[&str]) -> Result<String, String> {
        let toolbox = Toolbox::at(&self.toolbox, Path::new(env!("CARGO_BIN_EXE_foothold")));
        let options = [
            "APT::Architecture=amd64",
            "APT::Sandbox::User=root",
            "Dir::State=/mnt/test/state",
            "Dir::State::status=/mnt/test/root/var/lib/dpkg/status",
            "Dir::Cache=/mnt/test/cache",
            "Dir::Etc::SourceList=/mnt/test/sources.list",
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Log=/mnt/test",
            "DPkg::Options::=--root=/mnt/test/root",
            "DPkg::Options::=--force-script-chrootless",
        ];
        let mut lines = Vec::new();
        let tool = toolbox.tool("apt-get").bind(self.dir.path(), Path::new(INSIDE), true);
        let tool = tool.args(options.iter().flat_map(|option| ["-o", option])).args(arguments);
        let out = tool.run_with(&mut |line| lines.push(line.to_owned())).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned() + &lines.join("\n"))
    }
}

fn key() -> Key {
    Key::new(&[7; 32], "Test", 1_735_689_600).expect("a key")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs_err::read(path).expect("read");
    bytes[at] ^= 1;
    fs_err::write(path, bytes).expect("written");
}

#[test]
fn apt_updates_without_a_word_of_warning_and_installs_with_dependencies() {
    let bench = Bench::new();
    bench.publish(&bench.make(&key()));
    let said = bench.apt(&["update", "--error-on=any"]).expect("it accepts the repository");
    assert!(
        !said.lines().any(|line| line.starts_with("W:") || line.starts_with("N:") || line.starts_with("E:")),
        "{said}"
    );
    bench.apt(&["install", "--yes", "site-tool"]).expect("it installs");
    let installed = |name: &str| fs_err::read_to_string(bench.dir.path().join("root/usr/share/site").join(name));
    assert_eq!(installed("site-tool").expect("a file"), "1:2.0-1");
    assert_eq!(installed("site-data").expect("what it depends on"), "1.0+b1");
}

#[test]
fn apt_refuses_an_index_a_release_file_or_a_package_with_one_byte_flipped() {
    let bench = Bench::new();
    let made = bench.make(&key());
    // In the compressed index, in the signed text, and in the signature.
    for path in ["dists/trixie/main/binary-amd64/Packages.xz", "dists/trixie/InRelease"] {
        bench.publish(&made);
        let by_hash = made.files.iter().filter(|(_, blob)| **blob == made.files[path]).map(|(path, _)| path);
        for path in by_hash {
            flip(&bench.served(path), 100);
        }
        let error = bench.apt(&["update", "--error-on=any"]).expect_err(path);
        assert!(error.contains("E:"), "{error}");
    }
    bench.publish(&made);
    let text = fs_err::read_to_string(bench.served("dists/trixie/InRelease")).expect("read");
    flip(&bench.served("dists/trixie/InRelease"), text.find("-----BEGIN PGP SIGNATURE").expect("a signature") + 80);
    bench.apt(&["update", "--error-on=any"]).expect_err("another signature");
    bench.publish(&made);
    bench.apt(&["update", "--error-on=any"]).expect("whole again");
    let deb = made.files.keys().find(|path| path.starts_with("pool/site-tool/")).expect("a package");
    flip(&bench.served(deb), 70);
    let error = bench.apt(&["install", "--yes", "site-tool"]).expect_err("a damaged package");
    assert!(error.contains("Hash Sum mismatch") || error.contains("unexpected size"), "{error}");
}

#[test]
fn another_key_than_the_one_given_to_apt_is_refused() {
    let bench = Bench::new();
    bench.publish(&bench.make(&key()));
    let other = Key::new(&[8; 32], "Test", 1_735_689_600).expect("a key");
    fs_err::write(bench.served("foothold.asc"), other.certificate()).expect("written");
    bench.apt(&["update", "--error-on=any"]).expect_err("not signed by it");
}

#[test]
fn the_same_packages_and_key_give_the_same_repository_in_another_cache() {
    let (one, other) = (Bench::new(), Bench::new());
    // Each bench makes its packages anew; the repository is made of the digests that the first one has.
    let copy = Bench { debs: one.debs.clone(), ..other };
    for deb in &one.debs {
        fs_err::copy(one.cache.blob_path(&deb.sha256), copy.cache.blob_path(&deb.sha256)).expect("copied");
    }
    let (made, again) = (one.make(&key()), copy.make(&key()));
    assert_eq!(made, again);
    let digest: &Digest = &made.files["dists/trixie/InRelease"].digest;
    assert_eq!(
        fs_err::read(one.cache.blob_path(digest)).expect("read"),
        fs_err::read(copy.cache.blob_path(digest)).expect("read")
    );
}

//! Kernel modules: which one fits a device, and in which order to load it and what it needs.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use fs_err::read_to_string;

/// What `depmod` wrote about the modules of the initrd.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    root: PathBuf,
    files: HashMap<String, Module>,
    /// Patterns by the bus before their first colon.
    aliases: HashMap<String, Vec<Alias>>,
    /// Names under which the kernel itself asks, such as `fs-ext4`.
    names: HashMap<String, Vec<String>>,
    soft: HashMap<String, Soft>,
    builtin: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Module {
    path: String,
    /// Paths, the one to load first last.
    needs: Vec<String>,
}

#[derive(Clone, Debug)]
struct Alias {
    pattern: String,
    /// Bytes before the first wildcard.
    literal: usize,
    module: String,
}

#[derive(Clone, Debug, Default)]
struct Soft {
    before: Vec<String>,
    after: Vec<String>,
}

impl Modules {
    /// Reads the tables below `root` (`/lib/modules/<release>`). Missing tables count as empty.
    pub fn read(root: &Path) -> Self {
        let text = |name: &str| read_to_string(root.join(name)).unwrap_or_default();
        let tables = [text("modules.dep"), text("modules.alias"), text("modules.softdep"), text("modules.builtin")];
        let [dep, alias, soft, builtin] = tables.each_ref();
        Self::parse(root, dep, alias, soft, builtin)
    }

    fn parse(root: &Path, dep: &str, alias: &str, soft: &str, builtin: &str) -> Self {
        let mut modules = Self { root: root.to_owned(), ..Self::default() };
        for (path, needs) in dep.lines().filter_map(|line| line.split_once(':')) {
            let module = Module { path: path.to_owned(), needs: needs.split_whitespace().map(str::to_owned).collect() };
            modules.files.insert(name_of(path), module);
        }
        for line in alias.lines() {
            if let ["alias", pattern, module] = line.split_whitespace().collect::<Vec<_>>()[..] {
                modules.add_alias(pattern, module);
            }
        }
        for line in soft.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["softdep", module, rest @ ..] = &words[..] {
                modules.soft.insert(normal(module), soft_of(rest));
            }
        }
        modules.builtin = builtin.lines().map(name_of).collect();
        modules
    }

    fn add_alias(&mut self, pattern: &str, module: &str) {
        let module = normal(module);
        let literal = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
        if let Some((bus, _)) = pattern.split_once(':') {
            let alias = Alias { pattern: pattern.to_owned(), literal, module };
            self.aliases.entry(bus.to_owned()).or_default().push(alias);
        } else {
            self.names.entry(normal(pattern)).or_default().push(module);
        }
    }

    /// The modules that fit a device, by its `modalias`.
    pub fn matching(&self, modalias: &str) -> Vec<&str> {
        let bus = modalias.split_once(':').map_or("", |(bus, _)| bus);
        let patterns = self.aliases.get(bus).map_or(&[][..], Vec::as_slice);
        let fits = |alias: &&Alias| {
            modalias.as_bytes().starts_with(&alias.pattern.as_bytes()[..alias.literal])
                && fnmatch(alias.pattern.as_bytes(), modalias.as_bytes())
        };
        patterns.iter().filter(fits).map(|alias| alias.module.as_str()).collect()
    }

    /// The files to load, in order, so that `name` is there; `None` when the initrd has no such
    /// module. One that is built in needs no file.
    pub fn order(&self, name: &str) -> Option<Vec<PathBuf>> {
        let name = normal(name);
        if self.builtin.contains(&name) {
            return Some(Vec::new());
        }
        if !self.files.contains_key(&name) {
            let behind = self.names.get(&name)?;
            return behind.iter().find_map(|module| self.files.contains_key(module).then(|| self.order(module))?);
        }
        let mut order = Vec::new();
        self.collect(&name, &mut order, &mut BTreeSet::new());
        Some(order.iter().map(|path| self.root.join(path)).collect())
    }

    fn collect(&self, name: &str, order: &mut Vec<String>, seen: &mut BTreeSet<String>) {
        let Some(module) = self.files.get(name) else {
            // Soft dependencies may name what a module provides, such as `crypto-crc32c`.
            let provider = self.names.get(name).and_then(|all| all.iter().find(|one| self.files.contains_key(*one)));
            return provider.map_or((), |provider| self.collect(provider, order, seen));
        };
        if !seen.insert(name.to_owned()) {
            return;
        }
        let soft = self.soft.get(name).cloned().unwrap_or_default();
        let needs = module.needs.iter().rev().map(|path| name_of(path));
        for before in soft.before.into_iter().chain(needs) {
            self.collect(&before, order, seen);
        }
        order.push(module.path.clone());
        for after in soft.after {
            self.collect(&after, order, seen);
        }
    }
}

fn soft_of(words: &[&str]) -> Soft {
    let mut soft = Soft::default();
    let mut after = false;
    for word in words {
        match *word {
            "pre:" => after = false,
            "post:" => after = true,
            name if after => soft.after.push(normal(name)),
            name => soft.before.push(normal(name)),
        }
    }
    soft
}

/// `kernel/fs/ext4/ext4.ko` -> `ext4`.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    normal(file.split_once(".ko").map_or(file, |(name, _)| name))
}

/// The kernel takes `-` and `_` in module names for the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// fnmatch(3) without flags: `*`, `?`, `[a-z]`.
fn fnmatch(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return true,
            Some(_) if t < text.len() => match_one(&pattern[p..], text[t]),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((star_p, star_t))) if star_t < text.len() => {
                star = Some((star_p, star_t + 1));
                (p, t) = (star_p + 1, star_t + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Length of the pattern's first element when it fits the byte.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => {
            let end = pattern.iter().position(|b| *b == b']')?;
            in_set(&pattern[1..end], byte).then_some(end + 1)
        }
        literal => (literal == byte).then_some(1),
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    match set {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || in_set(rest, byte),
        [one, rest @ ..] => *one == byte || in_set(rest, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Modules, fnmatch};

    const DEP: &str = "kernel/fs/ext4/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko\n\
                       kernel/fs/jbd2/jbd2.ko:\nkernel/fs/mbcache.ko:\n\
                       kernel/drivers/block/virtio_blk.ko:\nkernel/lib/crc/libcrc32c.ko:\n\
                       kernel/drivers/usb/storage/uas.ko: kernel/drivers/usb/storage/usb-storage.ko\n\
                       kernel/drivers/usb/storage/usb-storage.ko:\n";
    const ALIAS: &str = "# Aliases extracted from modules themselves.\nalias fs-ext4 ext4\n\
                         alias virtio:d00000002v* virtio_blk\n\
                         alias usb:v*p*d*dc*dsc*dp*ic08isc06ip50in* usb_storage\n\
                         alias usb:v*p*d*dc*dsc*dp*ic08isc06ip62in* uas\n";
    const SOFT: &str = "softdep ext4 pre: libcrc32c\nsoftdep usb_storage post: uas\n";

    fn modules() -> Modules {
        Modules::parse(Path::new("/m"), DEP, ALIAS, SOFT, "kernel/fs/fuse.ko\n")
    }

    fn names(order: Option<Vec<PathBuf>>) -> Vec<String> {
        let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        order.unwrap_or_default().iter().filter_map(stem).collect()
    }

    #[test]
    fn patterns_match_as_the_kernel_means_them() {
        let table = [
            ("virtio:d00000002v*", "virtio:d00000002v00001AF4", true),
            ("pci:v*d*sv*sd*bc01sc06i01*", "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01", true),
            ("pci:v*d*sv*sd*bc01sc06i01*", "pci:v00008086d00002922sv00001AF4sd00001100bc01sc08i02", false),
            ("usb:v0525pA4A[0-5]d*", "usb:v0525pA4A3d0001", true),
            ("usb:v0525pA4A[0-5]d*", "usb:v0525pA4A7d0001", false),
            ("a?c", "abc", true),
            ("a*", "a", true),
            ("a*b", "a", false),
            ("", "", true),
        ];
        for (pattern, text, fits) in table {
            assert_eq!(fnmatch(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn what_a_module_needs_comes_before_it() {
        assert_eq!(names(modules().order("ext4")), ["libcrc32c", "jbd2", "mbcache", "ext4"]);
        assert_eq!(names(modules().order("usb-storage")), ["usb-storage", "uas"]);
    }

    #[test]
    fn built_in_and_unknown_modules_are_told_apart() {
        assert_eq!(modules().order("fuse"), Some(Vec::new()));
        assert_eq!(modules().order("nothing"), None);
        assert_eq!(names(modules().order("fs-ext4")).last().map(String::as_str), Some("ext4"));
    }

    #[test]
    fn a_device_finds_its_modules() {
        assert_eq!(modules().matching("virtio:d00000002v00001AF4"), ["virtio_blk"]);
        assert_eq!(modules().matching("usb:v46F4p0001d0000dc00dsc00dp00ic08isc06ip50in00"), ["usb_storage"]);
        assert!(modules().matching("acpi:PNP0A03:").is_empty());
    }
}

//! The modules of a crate as rooms, and which imports between them go the wrong way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use super::imports::Import;

/// A module that has a file of its own.
pub struct Module {
    /// Its names from the crate's root on.
    pub path: Vec<String>,
    /// Its file.
    pub file: PathBuf,
}

/// All modules of a crate, and their floors.
pub struct Rooms {
    src: PathBuf,
    modules: Vec<Module>,
    /// Modules that have files below them.
    folders: BTreeSet<Vec<String>>,
    /// Modules of the top level, the uppermost first.
    floors: Vec<String>,
    missing: Vec<String>,
}

impl Rooms {
    /// Reads the crate whose sources are in `src`.
    pub fn read(src: &Path) -> anyhow::Result<Self> {
        let mut rooms = Self {
            src: src.to_owned(),
            modules: Vec::new(),
            folders: BTreeSet::new(),
            floors: Vec::new(),
            missing: Vec::new(),
        };
        rooms.folder(src, &[])?;
        ensure!(!rooms.modules.is_empty(), "no sources");
        let top: BTreeSet<&String> =
            rooms.modules.iter().filter_map(|module| module.path.first().filter(|_| module.path.len() == 1)).collect();
        let lib = fs_err::read_to_string(src.join("lib.rs"))?;
        let drawing = lib.split("//! ```text").nth(1).and_then(|rest| rest.split("//! ```").next());
        let drawing = drawing.context("lib.rs has no drawing: a block ```text in its documentation")?;
        let words = drawing.lines().filter_map(|line| line.strip_prefix("//! ")?.split_whitespace().next());
        rooms.floors = words.filter(|word| top.contains(&(*word).to_owned())).map(str::to_owned).collect();
        rooms.missing = top.into_iter().filter(|name| !rooms.floors.contains(name)).cloned().collect();
        Ok(rooms)
    }

    fn folder(&mut self, dir: &Path, path: &[String]) -> anyhow::Result<()> {
        let mut entries: Vec<_> = fs_err::read_dir(dir)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs_err::DirEntry::path);
        for entry in entries {
            let file = entry.path();
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let inner = [path, std::slice::from_ref(&stem)].concat();
            if file.is_dir() {
                // Programs have crates of their own.
                if !(path.is_empty() && stem == "bin") {
                    self.folder(&file, &inner)?;
                    self.folders.insert(inner);
                }
            } else if file.extension().is_some_and(|extension| extension == "rs") {
                let is_folder = stem == "mod" || (path.is_empty() && ["lib", "main"].contains(&stem.as_str()));
                let path = match stem.strip_suffix("_tests") {
                    // Written beside what it tests, and `mod tests` of it by its `#[path]`.
                    Some(tested) => [path, &[tested.to_owned(), "tests".to_owned()]].concat(),
                    None if is_folder => path.to_vec(),
                    None => inner,
                };
                self.modules.push(Module { path, file });
            }
        }
        Ok(())
    }

    /// All modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Imports between modules of the top level that do not go down, and modules that stand on no floor.
    pub fn climbs(&self, imports: &[Import]) -> Vec<String> {
        let missing =
            self.missing.iter().map(|name| format!("lib.rs: the drawing has no line that begins with `{name}`"));
        let floor = |name: &String| self.floors.iter().position(|floor| floor == name);
        let climbs = imports.iter().filter_map(|import| {
            let (from, to) = (import.from.first()?, import.to.first()?);
            let up = floor(to)? < floor(from)?;
            up.then(|| format!("{}: `{from}` imports `{to}`, which stands above it in lib.rs", self.place(import)))
        });
        missing.chain(climbs).collect()
    }

    /// Imports between folders side by side, below the top level, that are part of a circle.
    pub fn circles(&self, imports: &[Import]) -> Vec<String> {
        let mut edges: BTreeMap<(Vec<String>, Vec<String>), Vec<&Import>> = BTreeMap::new();
        for import in imports {
            let common = import.from.iter().zip(&import.to).take_while(|(a, b)| a == b).count();
            let child = |path: &[String]| {
                path.get(..=common).filter(|room| self.folders.contains(*room)).map(<[String]>::to_vec)
            };
            // On the top level the floors decide.
            if let (1.., Some(from), Some(to)) = (common, child(&import.from), child(&import.to)) {
                edges.entry((from, to)).or_default().push(import);
            }
        }
        let names: BTreeMap<&Vec<String>, String> =
            edges.keys().flat_map(|(from, to)| [from, to]).map(|room| (room, room.join("::"))).collect();
        let graph: DiGraphMap<&str, ()> =
            DiGraphMap::from_edges(edges.keys().map(|(from, to)| (names[from].as_str(), names[to].as_str())));
        let knots = tarjan_scc(&graph);
        let mut found = Vec::new();
        for ((from, to), imports) in &edges {
            let (from, to) = (names[from].as_str(), names[to].as_str());
            if knots.iter().any(|knot| knot.contains(&from) && knot.contains(&to)) {
                let told = imports.iter();
                found.extend(
                    told.map(|it| format!("{}: `{from}` imports `{to}`, which needs `{from}`", self.place(it))),
                );
            }
        }
        found
    }

    fn place(&self, import: &Import) -> String {
        let file = Path::new(&import.file);
        format!("{}:{}", file.strip_prefix(&self.src).unwrap_or(file).display(), import.line)
    }
}

//! Every `README.md` says what is true: its YAML passes the product's own checks, its commands are ones that the programs
//! take, its links lead somewhere.
//!
//! ```text
//! pages ──blocks──► `yaml`  definitions, Sites, simulations, DHCP settings, recipes, objects of the cluster ─► yaml
//!                   `sh`    `foothold`, `foothold-agent`, `cargo test|bench`                               ─► commands
//!       ──links───► files and headings
//! ```
//! A block of YAML need not be a whole definition or Site: one that starts with a key of theirs is put into a small one.

mod commands;
mod yaml;

use std::path::{Path, PathBuf};

/// Most lines of the page that everybody reads first.
const FRONT_DOOR_LINES: usize = 130;

/// A page and its text.
struct Page {
    /// Relative to the sources.
    path: PathBuf,
    text: String,
}

/// What stands between two fences.
struct Block {
    /// Where, as `file:line`.
    place: String,
    /// The word after the fence.
    language: String,
    /// What follows that word.
    info: String,
    text: String,
}

/// The folder with the sources.
fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    look_into(sources(), &mut found);
    let read = |path: PathBuf| Page {
        text: fs_err::read_to_string(&path).expect("a page"),
        path: path.strip_prefix(sources()).expect("is below").to_owned(),
    };
    found.sort();
    found.into_iter().map(read).collect()
}

fn look_into(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && !["target", "out"].contains(&name.as_str())
        {
            look_into(&path, found);
        } else if name == "README.md" {
            found.push(path);
        }
    }
}

fn blocks(page: &Page) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(words)) => {
                let (language, info) = words.split_once(' ').unwrap_or((words, ""));
                let place = format!("{}:{}", page.path.display(), index + 1);
                open = Some(Block { place, language: language.into(), info: info.into(), text: String::new() });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a fence is not closed", page.path.display());
    blocks
}

/// The lines that are not between fences.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().filter(outside).collect()
}

/// Where the links of a page lead to.
fn links(text: &str) -> Vec<String> {
    let target = |rest: &str| rest.split_once(')').map(|(target, _)| target.to_owned());
    prose(text).into_iter().flat_map(|line| line.split("](").skip(1).filter_map(target)).collect()
}

/// The headings of a page as links name them.
fn anchors(text: &str) -> Vec<String> {
    let anchor = |line: &str| {
        let kept = |c: char| (c.is_alphanumeric() || " -_".contains(c)).then(|| c.to_ascii_lowercase());
        line.strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#').trim().chars().filter_map(kept).collect::<String>())
    };
    prose(text).into_iter().filter_map(anchor).map(|anchor| anchor.replace(' ', "-")).collect()
}

/// What is wrong with a link, if anything.
fn broken(page: &Page, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let here = sources().join(&page.path);
    let there = if file.is_empty() { here } else { here.parent().expect("a folder").join(file) };
    if !there.exists() {
        return Some(format!("{}: the link `{target}` leads to no file", page.path.display()));
    }
    let missing = |anchor: &&str| {
        let text = fs_err::read_to_string(&there).unwrap_or_default();
        !anchors(&text).iter().any(|one| one == anchor)
    };
    let anchor = anchor.filter(missing)?;
    Some(format!("{}: the link `{target}` names no heading: `{anchor}`", page.path.display()))
}

#[test]
fn yaml_of_the_pages_passes_the_checks_of_the_product() {
    let checker = yaml::Checker::new();
    let pages = pages();
    let blocks: Vec<Block> = pages.iter().flat_map(blocks).filter(|block| block.language == "yaml").collect();
    assert!(blocks.len() >= 20, "only {} blocks", blocks.len());
    let wrong: Vec<String> = blocks
        .iter()
        .filter_map(|block| checker.check(&block.info, &block.text).err().map(|why| format!("{}: {why}", block.place)))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn commands_of_the_pages_are_taken_by_their_programs() {
    let pages = pages();
    let blocks: Vec<Block> = pages.iter().flat_map(blocks).filter(|block| block.language == "sh").collect();
    assert!(blocks.len() >= 10, "only {} blocks", blocks.len());
    let told = |block: &Block| -> Vec<String> {
        let wrong = commands::problems(sources(), &block.text);
        wrong.into_iter().map(|why| format!("{}: {why}", block.place)).collect()
    };
    let wrong: Vec<String> = blocks.iter().flat_map(told).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let told =
        |page: &Page| -> Vec<String> { links(&page.text).iter().filter_map(|target| broken(page, target)).collect() };
    let wrong: Vec<String> = pages().iter().flat_map(told).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_front_door_is_short() {
    let lines = fs_err::read_to_string(sources().join("README.md")).expect("the page").lines().count();
    assert!(lines <= FRONT_DOOR_LINES, "README.md has {lines} lines, at most {FRONT_DOOR_LINES} are read");
}

#[test]
fn a_mistake_in_a_page_is_noticed() {
    let page = Page { path: "README.md".into(), text: "# A map\n\n[x](#a-map) [y](#c) [z](nowhere.md)\n".into() };
    let told: Vec<String> = links(&page.text).iter().filter_map(|target| broken(&page, target)).collect();
    let expected =
        ["README.md: the link `#c` names no heading: `c`", "README.md: the link `nowhere.md` leads to no file"];
    assert_eq!(told, expected);
}

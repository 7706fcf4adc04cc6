//! Making a tree of packages into what is shipped: programs of it are run in it, and what nothing reads is taken out.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::toolbox::Toolbox;

/// Top folders of a tree that programs in it may change.
const WRITABLE: [&str; 3] = ["usr", "etc", "var"];
/// Where a recipe's folder lies for them.
const RECIPE: &str = "/mnt/recipe";

/// Runs a program of the tree in the tree, with the recipe's folder at `/mnt/recipe`. Nothing of it depends on the order
/// of a hash table.
pub fn run(root: &Path, helper: &Path, argv: &[String], recipe: &Path, built: u64) -> Result<()> {
    let (program, arguments) = argv.split_first().context("a command of the recipe is empty")?;
    for folder in WRITABLE {
        fs_err::create_dir_all(root.join(folder))?;
    }
    let own = Toolbox::at(root, helper);
    let mut tool = own.tool(program).args(arguments);
    for folder in WRITABLE {
        tool = tool.bind(&root.join(folder), &Path::new("/").join(folder), true);
    }
    let tool = tool.bind(recipe, Path::new(RECIPE), false).env("PYTHONHASHSEED", "0");
    tool.env("SOURCE_DATE_EPOCH", built.to_string()).run()?;
    Ok(())
}

/// Removes what the patterns name. One that names nothing is an error: the packages are no longer what the recipe was
/// written for.
pub fn remove(root: &Path, patterns: &[String]) -> Result<()> {
    for pattern in patterns {
        let found = matches(root, pattern)?;
        ensure!(
            !found.is_empty(),
            "there is nothing at `{pattern}`, which the recipe removes\nhint: take it out of `remove`"
        );
        for path in found {
            if path.symlink_metadata()?.is_dir() {
                fs_err::remove_dir_all(path)?;
            } else {
                fs_err::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// Paths below `root` that a pattern names. `*` is any part of one name, `**` any number of folders.
fn matches(root: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let parts: Vec<&str> = pattern.trim_matches('/').split('/').collect();
    let mut found = Vec::new();
    collect(root, &parts, &mut found)?;
    found.sort();
    found.dedup();
    // What lies in a folder goes with it.
    let folders = found.clone();
    found.retain(|path| !folders.iter().any(|other| path != other && path.starts_with(other)));
    Ok(found)
}

fn collect(folder: &Path, parts: &[&str], found: &mut Vec<PathBuf>) -> Result<()> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    if *first == "**" {
        collect(folder, rest, found)?;
    }
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let (is_folder, path) = (entry.file_type()?.is_dir(), entry.path());
        match *first {
            "**" if is_folder => collect(&path, parts, found)?,
            "**" => {}
            first if !is_like(first, &entry.file_name().to_string_lossy()) => {}
            _ if rest.is_empty() => found.push(path),
            _ if is_folder => collect(&path, rest, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether a name is like a pattern with any number of `*`.
fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, rest)) => name
            .strip_prefix(begin)
            .is_some_and(|name| (0..=name.len()).any(|at| name.is_char_boundary(at) && is_like(rest, &name[at..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_like, matches, remove};

    #[test]
    fn patterns_name_paths_and_what_lies_in_them_goes_along() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in ["a/tests/b/tests/x", "a/c/tests/x", "a/testsuite/x", "d/x.iso", "d/y.lkrn"] {
            let path = dir.path().join(path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, "").expect("written");
        }
        let named = |pattern: &str| -> Vec<String> {
            let found = matches(dir.path(), pattern).expect("read");
            found.iter().map(|path| path.strip_prefix(dir.path()).expect("below").display().to_string()).collect()
        };
        assert_eq!(named("/a/**/tests"), ["a/c/tests", "a/tests"]);
        assert_eq!(named("/d/*.iso"), ["d/x.iso"]);
        assert_eq!(named("/d"), ["d"]);
        assert_eq!(named("/e"), Vec::<String>::new());
        assert!(is_like("*-riscv64.efi", "ipxe-riscv64.efi") && !is_like("*-riscv64.efi", "ipxe-arm64.efi"));
        remove(dir.path(), &["/d/*.iso".to_owned()]).expect("removed");
        let error = remove(dir.path(), &["/d/*.iso".to_owned()]).expect_err("nothing left").to_string();
        assert!(error.contains("/d/*.iso") && error.contains("hint: "), "{error}");
    }
}

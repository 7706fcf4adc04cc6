//! Imports go one way, in each crate: down the floors that its `lib.rs` draws, and never in a circle between folders.
//!
//! The drawing is the first block of text in the documentation of `lib.rs`: each line that begins with the name of a
//! module is its floor, and what stands above may import what stands below. A folder below the top level has no drawing:
//! there, folders side by side must not need each other. A folder and what it holds are one room, and may.

mod imports;
mod rooms;

use std::path::{Path, PathBuf};

use imports::Import;
use rooms::Rooms;

/// The crates of the workspace that draw their floors.
const CRATES: [&str; 4] = ["agent", "agent/api", "imagebuilder", "qemu"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// What is wrong with the imports of the crate whose sources are in `src`, a line each.
fn problems(src: &Path) -> anyhow::Result<Vec<String>> {
    let rooms = Rooms::read(src)?;
    let mut imports: Vec<Import> = Vec::new();
    for module in rooms.modules() {
        imports.extend(imports::read(&module.file, &module.path)?);
    }
    let mut found = rooms.climbs(&imports);
    found.extend(rooms.circles(&imports));
    Ok(found)
}

#[test]
fn imports_go_down_the_floors_and_never_in_a_circle() {
    let mut found = Vec::new();
    for member in CRATES {
        let src = workspace().join(member).join("src");
        let problems = problems(&src).unwrap_or_else(|error| panic!("{member}: {error:#}"));
        found.extend(problems.into_iter().map(|problem| format!("{member}/src/{problem}")));
    }
    assert!(found.is_empty(), "{} imports go the wrong way:\n{}", found.len(), found.join("\n"));
}

/// A crate of these files, and what is wrong with it.
fn problems_of(files: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs_err::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs_err::write(path, text).expect("a file");
    }
    problems(dir.path()).expect("a crate")
}

const FLOORS: &str =
    "//! A crate.\n//!\n//! ```text\n//! above   uses\n//! below   is used\n//! ```\nmod above;\nmod below;\n";

#[test]
fn an_import_that_climbs_is_named_with_file_and_line() {
    let down = ("above.rs", "use crate::below::{A, B};\n");
    assert_eq!(problems_of(&[("lib.rs", FLOORS), down, ("below.rs", "")]), Vec::<String>::new());
    let table = [
        ("use crate::above::A;\n", 1),
        ("// crate::above is only spoken of\n\nuse crate::{above, below};\n", 3),
        ("fn f() {\n    crate::above::f();\n}\n", 2),
        ("mod tests {\n    use super::super::above;\n}\n", 2),
        ("fn f() {\n    vec![crate::above::f()];\n}\n", 2),
    ];
    for (below, line) in table {
        let expected = format!("below.rs:{line}: `below` imports `above`, which stands above it in lib.rs");
        assert_eq!(problems_of(&[("lib.rs", FLOORS), ("above.rs", ""), ("below.rs", below)]), [expected], "{below}");
    }
}

#[test]
fn a_module_that_the_drawing_lacks_or_invents_is_an_error() {
    let lib = FLOORS.replace("above   uses", "attic   uses");
    let found = problems_of(&[("lib.rs", &lib), ("above.rs", ""), ("below.rs", "")]);
    assert_eq!(found, ["lib.rs: the drawing has no line that begins with `above`"]);
}

#[test]
fn folders_side_by_side_that_need_each_other_are_a_circle() {
    let lib = "//! ```text\n//! a  all\n//! ```\npub mod a;\n";
    let files = |back: &'static str| {
        [
            ("lib.rs", lib),
            ("a/mod.rs", "pub mod b;\npub mod c;\nuse self::b::B;\n"),
            ("a/b/mod.rs", "use super::c::C;\nuse crate::a::X;\n"),
            ("a/c/mod.rs", "pub mod deep;\n"),
            ("a/c/deep.rs", back),
        ]
    };
    assert_eq!(problems_of(&files("use super::C;\n")), Vec::<String>::new());
    let expected = [
        "a/b/mod.rs:1: `a::b` imports `a::c`, which needs `a::b`",
        "a/c/deep.rs:2: `a::c` imports `a::b`, which needs `a::c`",
    ];
    assert_eq!(problems_of(&files("use std::io;\nuse super::super::b::B;\n")), expected);
}

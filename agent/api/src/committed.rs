//! For tests: files of `agent/api/crds` that are made from types.

/// Where they are.
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");

/// Says which of these manifests (file name, text) are old; all files there that begin with `prefix` must be among them.
pub fn check(prefix: &str, manifests: &[(String, String)]) {
    let update = std::env::var_os("INSTA_UPDATE").is_some_and(|mode| mode == "always");
    let mut old = Vec::new();
    for (name, text) in manifests {
        let path = format!("{MANIFESTS}/{name}");
        if fs_err::read_to_string(&path).unwrap_or_default() == *text {
            continue;
        }
        if update {
            fs_err::create_dir_all(MANIFESTS).expect("a folder");
            fs_err::write(&path, text).expect("written");
        } else {
            old.push(name);
        }
    }
    assert!(old.is_empty(), "agent/api/crds: {old:?} are old; hint: INSTA_UPDATE=always cargo test -p agent-api");
    let names = fs_err::read_dir(MANIFESTS).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let committed = names.filter(|name| name.to_string_lossy().starts_with(prefix)).count();
    assert_eq!(committed, manifests.len(), "a file in agent/api/crds belongs to no kind");
}

//! The SITE partition: how to tell the box what is particular to one place.

use super::{Content, SourceFile};

const README: &str = include_str!("site/README.txt");
const EXAMPLE: &str = include_str!("site/site.yaml.example");

/// The files of SITE: `own` ones, and those that explain it unless they are among them.
pub fn files(own: &[SourceFile]) -> Vec<SourceFile> {
    let defaults = [("README.txt", README), ("site.yaml.example", EXAMPLE)];
    let missing = defaults.into_iter().filter(|(path, _)| own.iter().all(|file| file.path != *path));
    let made = missing
        .map(|(path, text)| SourceFile { path: path.to_owned(), content: Content::Bytes(text.as_bytes().to_vec()) });
    own.iter().cloned().chain(made).collect()
}

#[cfg(test)]
mod tests {
    use agent_api::site::Site;

    use super::{Content, EXAMPLE, SourceFile, files};

    #[test]
    fn the_example_is_a_valid_site() {
        let site = Site::parse(EXAMPLE).expect("a site");
        assert_eq!(site.hostname.as_deref(), Some("edge-1"));
    }

    #[test]
    fn files_of_the_caller_take_the_place_of_the_explanations() {
        let own = SourceFile { path: "README.txt".to_owned(), content: Content::Bytes(b"mine".to_vec()) };
        let paths: Vec<_> = files(std::slice::from_ref(&own)).iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths, ["README.txt", "site.yaml.example"]);
        assert_eq!(files(std::slice::from_ref(&own))[0], own);
    }
}

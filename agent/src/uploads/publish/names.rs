//! What an uploaded image is called in the box's registry. Pure.
//!
//! Everything is below the owner's name: nobody can replace another owner's image, or one of the release.

use agent_api::bpa::Description;

/// Longest repository and tag (OCI distribution specification, "Pulling manifests").
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;

/// Which image of the archive gets which name: `(number of the image, repository, tag)`.
pub(super) type Named = (usize, String, String);

/// The names for images whose names in the archive are `own`: those of the description's records, or else their own.
pub(super) fn names(owner: &str, description: &Description, own: &[Vec<String>]) -> Result<Vec<Named>, String> {
    if own.is_empty() {
        return Err("the archive holds no image".to_owned());
    }
    let mut named = Vec::new();
    let records = description.image_records.iter().filter(|record| !text(record, "repo").is_empty());
    for record in records {
        let (repo, tag) = (text(record, "repo"), text(record, "tag"));
        let (repo, tag) = if tag.is_empty() { split(repo) } else { (repo.to_owned(), tag.to_owned()) };
        let image = if own.len() == 1 { 0 } else { find(own, &repo, &tag, text(record, "image_record_name"))? };
        named.push((image, below(owner, &repo), tag));
    }
    if named.is_empty() {
        for (image, names) in own.iter().enumerate() {
            for name in names {
                let (repo, tag) = split(name);
                named.push((image, below(owner, &repo), tag));
            }
        }
    }
    if named.is_empty() {
        return Err("the archive gives its image no name; hint: PUT `description.image_records` with `repo` and `tag`"
            .to_owned());
    }
    for (_, repository, tag) in &named {
        check(repository, tag)?;
    }
    named.sort();
    named.dedup();
    Ok(named)
}

fn text<'a>(record: &'a std::collections::BTreeMap<String, String>, key: &str) -> &'a str {
    record.get(key).map(String::as_str).unwrap_or_default().trim()
}

/// The image of an archive with several that a record means.
fn find(own: &[Vec<String>], repo: &str, tag: &str, record_name: &str) -> Result<usize, String> {
    let means = |name: &String| {
        let (found, found_tag) = split(name);
        let same = path(&found) == path(repo) || path(&found).ends_with(&format!("/{}", path(repo)));
        name == record_name || (same && found_tag == tag)
    };
    let found = own.iter().position(|names| names.iter().any(means));
    found.ok_or_else(|| {
        let names: Vec<&str> = own.iter().flatten().map(String::as_str).collect();
        format!("no image of the archive is `{repo}:{tag}`; there are {}", names.join(", "))
    })
}

/// Repository and tag of a reference; without a tag it is `latest`. A digest at its end is left out.
fn split(reference: &str) -> (String, String) {
    let reference = reference.split('@').next().unwrap_or_default();
    match reference.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository.to_owned(), tag.to_owned()),
        _ => (reference.to_owned(), "latest".to_owned()),
    }
}

/// A repository without the registry's host, as docker tells them apart.
fn path(repository: &str) -> &str {
    match repository.split_once('/') {
        Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => path,
        _ => repository,
    }
}

fn below(owner: &str, repository: &str) -> String {
    let path = path(repository);
    if path.starts_with(&format!("{owner}/")) { path.to_owned() } else { format!("{owner}/{path}") }
}

/// The specification's `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/...)*` and `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn check(repository: &str, tag: &str) -> Result<(), String> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part = |part: &str| {
        let ends = part.bytes().next().is_some_and(inner) && part.bytes().last().is_some_and(inner);
        let mut separators = part.split(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit());
        ends && separators.all(|found| matches!(found, "" | "." | "_" | "__") || found.bytes().all(|b| b == b'-'))
    };
    if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(part) {
        return Err(format!("`{repository}` is no name in a registry: lower case, digits, single `.` `_` `-` between"));
    }
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good = tag.bytes().next().is_some_and(word) && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-');
    if good && tag.len() <= LONGEST_TAG { Ok(()) } else { Err(format!("`{tag}` is no tag")) }
}

#[cfg(test)]
mod tests {
    use agent_api::bpa::Description;
    use rstest::rstest;

    use super::{names, split};

    fn records(records: &[(&str, &str, &str)]) -> Description {
        let record = |(name, repo, tag): &(&str, &str, &str)| {
            [("image_record_name", *name), ("repo", *repo), ("tag", *tag)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        Description { image_records: records.iter().map(record).collect() }
    }

    /// Names of each image of an archive, images apart by `;`.
    fn archive(own: &str) -> Vec<Vec<String>> {
        let images = own.split(';').filter(|_| own != "none");
        images.map(|names| names.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[rstest]
    #[case::record(&[("x", "icn", "2")], "docker.io/library/nginx:1.2", &["0 alpha/icn:2"])]
    #[case::two_tags(&[("x", "icn", "2"), ("y", "icn", "latest")], "", &["0 alpha/icn:2", "0 alpha/icn:latest"])]
    #[case::tag_in_repo(&[("x", "icn:3", "")], "", &["0 alpha/icn:3"])]
    #[case::host_goes(&[("x", "quay.io/org/app", "1")], "", &["0 alpha/org/app:1"])]
    #[case::own_name(&[], "docker.io/library/nginx:1.2", &["0 alpha/library/nginx:1.2"])]
    #[case::own_without_tag(&[], "nginx", &["0 alpha/nginx:latest"])]
    #[case::record_without_repo(&[("x", "", "")], "a:1", &["0 alpha/a:1"])]
    #[case::owner_once(&[("x", "alpha/icn", "2")], "", &["0 alpha/icn:2"])]
    #[case::two_images(&[], "a:1;b:2", &["0 alpha/a:1", "1 alpha/b:2"])]
    #[case::which_of_two(&[("", "b", "2")], "a:1;docker.io/library/b:2", &["1 alpha/b:2"])]
    #[case::by_record_name(&[("a:1", "c", "9")], "a:1;b:2", &["0 alpha/c:9"])]
    fn an_image_is_called(#[case] said: &[(&str, &str, &str)], #[case] own: &str, #[case] expected: &[&str]) {
        let found = names("alpha", &records(said), &archive(own)).expect("names");
        let found: Vec<String> = found.iter().map(|(image, repo, tag)| format!("{image} {repo}:{tag}")).collect();
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::none(&[], "none", "no image")]
    #[case::nameless(&[], "", "hint: PUT")]
    #[case::stranger(&[("", "c", "1")], "a:1;b:1", "there are a:1, b:1")]
    #[case::upper(&[("", "App", "1")], "", "no name in a registry")]
    #[case::escape(&[("", "a/../gamma/app", "1")], "", "no name in a registry")]
    #[case::bad_tag(&[("", "app", "a/b")], "", "no tag")]
    fn or_it_is_told_why_not(#[case] said: &[(&str, &str, &str)], #[case] own: &str, #[case] why: &str) {
        let error = names("alpha", &records(said), &archive(own)).expect_err("refused");
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_port_is_no_tag_and_a_digest_no_name() {
        assert_eq!(split("host:5000/app"), ("host:5000/app".to_owned(), "latest".to_owned()));
        assert_eq!(split("app:1@sha256:00"), ("app".to_owned(), "1".to_owned()));
        assert!(names("Owner", &records(&[("", "app", "1")]), &[vec![]]).is_err());
    }
}

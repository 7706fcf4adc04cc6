//! Ranges of versions as charts write them in `kubeVersion` (Masterminds' semver for Go, "Checking Version Constraints").
//!
//! ```text
//! >= 1.25.0-0 < 1.40 || ~1.20    ^1.22    1.20 - 1.30    1.3x.x
//! ```

use std::cmp::Ordering;

/// A version with parts left open: `1.20`, `1.x`.
struct Partial {
    numbers: [Option<u64>; 3],
    /// Whether it is one before a release: `1.20.0-0`.
    before: bool,
}

/// Whether a range allows that release of Kubernetes (`v1.36.4`). `None`: the range is written in another way, or it is no
/// whole release; then Helm decides when the chart is rendered.
pub fn allows(range: &str, kubernetes: &str) -> Option<bool> {
    let release = Partial::read(kubernetes)?;
    if release.before || range.trim().is_empty() {
        return None;
    }
    let release = [release.numbers[0]?, release.numbers[1]?, release.numbers[2]?];
    let alternatives: Option<Vec<bool>> = range.split("||").map(|part| all(part, release)).collect();
    alternatives.map(|all| all.contains(&true))
}

/// Whether a release fulfils all conditions of a text.
fn all(text: &str, release: [u64; 3]) -> Option<bool> {
    let is_sign = |c: char| "=<>!~^".contains(c);
    let mut conditions: Vec<(String, Partial)> = Vec::new();
    let mut sign = String::new();
    let mut through = false;
    for word in text.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        if word == "-" {
            // `1.20 - 1.30`: the one before is the least.
            conditions.last_mut().filter(|(sign, _)| sign.is_empty())?.0.push_str(">=");
            through = true;
            continue;
        }
        let mut rest = word;
        while !rest.is_empty() {
            let version = rest.trim_start_matches(is_sign);
            sign += &rest[..rest.len() - version.len()];
            let end = version.find(is_sign).unwrap_or(version.len());
            if end > 0 {
                let sign = if through { "<=".to_owned() } else { std::mem::take(&mut sign) };
                conditions.push((sign, Partial::read(&version[..end])?));
                through = false;
            }
            rest = &version[end..];
        }
    }
    if !sign.is_empty() || through {
        return None;
    }
    let held: Option<Vec<bool>> = conditions.iter().map(|(sign, version)| version.holds(sign, release)).collect();
    held.map(|held| !held.contains(&false))
}

impl Partial {
    fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next().unwrap_or_default();
        let (numbers, before) = text.split_once('-').map_or((text, false), |(numbers, _)| (numbers, true));
        let mut version = Self { numbers: [None; 3], before };
        let mut open = false;
        for (i, part) in numbers.split('.').enumerate() {
            let number = version.numbers.get_mut(i)?;
            open |= matches!(part, "x" | "X" | "*");
            // What follows an open part is open.
            *number = if open { None } else { Some(part.parse().ok()?) };
        }
        Some(version)
    }

    /// How the release stands to it; one before a release is less than that.
    fn against(&self, release: [u64; 3]) -> Ordering {
        let own = self.numbers.map(Option::unwrap_or_default);
        release.cmp(&own).then(if self.before { Ordering::Greater } else { Ordering::Equal })
    }

    /// Whether the release has all numbers that are given.
    fn covers(&self, release: [u64; 3]) -> bool {
        self.numbers.iter().zip(release).all(|(own, other)| own.is_none_or(|own| own == other))
    }

    fn holds(&self, sign: &str, release: [u64; 3]) -> Option<bool> {
        let open = self.numbers.contains(&None);
        let order = self.against(release);
        let same = |parts: usize| {
            self.numbers[..parts].iter().zip(release).all(|(own, other)| own.is_none_or(|own| own == other))
        };
        Some(match sign {
            "" | "=" if open => self.covers(release),
            "" | "=" => order == Ordering::Equal,
            "!=" if open => !self.covers(release),
            "!=" => order != Ordering::Equal,
            ">" => order == Ordering::Greater && !(open && self.covers(release)),
            ">=" | "=>" => order != Ordering::Less,
            "<" => order == Ordering::Less,
            "<=" | "=<" => order != Ordering::Greater || (open && self.covers(release)),
            "~" | "~>" => order != Ordering::Less && same(2),
            // Before 1.0.0 the second number tells what fits; no Kubernetes is that old.
            "^" => order != Ordering::Less && same(1),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::allows;

    #[rstest]
    #[case(">=1.25.0-0", Some(true))]
    #[case(">= 1.36.4", Some(true))]
    #[case(">= 1.36.5-0", Some(false))]
    #[case(">=1.37-0", Some(false))]
    #[case(">1.36.3 <1.36.5", Some(true))]
    #[case("> 1.36", Some(false))]
    #[case("> 1.35", Some(true))]
    #[case(">=1.19.0-0,<1.30.0", Some(false))]
    #[case(">= 1.19, < 2", Some(true))]
    #[case("<1.25.0 || >=1.36", Some(true))]
    #[case("<= 1.36", Some(true))]
    #[case("<= 1.35", Some(false))]
    #[case("<1.36.4-0", Some(false))]
    #[case("~1.36", Some(true))]
    #[case("~1.36.5", Some(false))]
    #[case("~1.35.0", Some(false))]
    #[case("^1.22.0-0", Some(true))]
    #[case("^v1.37.0", Some(false))]
    #[case("1.x", Some(true))]
    #[case("1.35.x", Some(false))]
    #[case("*", Some(true))]
    #[case("1.36", Some(true))]
    #[case("v1.36.4", Some(true))]
    #[case("1.20 - 1.36", Some(true))]
    #[case("1.20.0 - 1.35.9", Some(false))]
    #[case("!=1.36.4", Some(false))]
    #[case("!=1.36.x, >1.20", Some(false))]
    #[case("!=1.35", Some(true))]
    #[case("", None)]
    #[case("newest", None)]
    #[case(">=", None)]
    #[case("1.20 -", None)]
    #[case("~~1.20", None)]
    fn a_range_allows_what_helm_says(#[case] range: &str, #[case] expected: Option<bool>) {
        assert_eq!(allows(range, "v1.36.4"), expected);
    }

    #[rstest]
    fn before_a_release_helm_decides() {
        assert_eq!(allows(">=1.20", "v1.37.0-rc.1"), None);
    }
}

//! Which API versions each chart sees: those of the box, and those that all other content adds.
//!
//! A chart asks for them (`.Capabilities.APIVersions.Has`) and may declare more or less for it; so all are rendered again
//! until none of them sees anything new. What a chart itself adds is told to it by Helm's own rule, in the rendering.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::documents::Object;
use super::sets::api_versions;

/// Rounds after which charts that still change each other do so for ever. Two are usual.
const MOST_ROUNDS: usize = 8;

/// The objects of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Objects {
    /// They are what they are.
    Given(Vec<Object>),
    /// They depend on the API versions.
    Rendered,
}

/// Renders the source of that number for a cluster that serves these versions.
pub type Render<'a> = dyn FnMut(usize, &BTreeSet<String>) -> Result<Vec<Object>> + 'a;

/// The objects of all sources, when none of them sees anything new any more.
pub fn settle(
    titles: &[&str],
    sources: Vec<Objects>,
    cluster: &BTreeSet<String>,
    render: &mut Render<'_>,
) -> Result<Vec<Vec<Object>>> {
    let mut seen: Vec<Option<BTreeSet<String>>> = Vec::new();
    let mut objects = Vec::new();
    for source in sources {
        let (given, rendered) = match source {
            Objects::Given(given) => (given, false),
            Objects::Rendered => (Vec::new(), true),
        };
        objects.push(given);
        seen.push(rendered.then(BTreeSet::new));
    }
    let mut changed = "";
    for round in 0..MOST_ROUNDS {
        changed = "";
        for number in 0..objects.len() {
            let Some(before) = &seen[number] else { continue };
            let others = objects.iter().enumerate().filter(|(other, _)| *other != number);
            let mut served = api_versions(others.flat_map(|(_, objects)| objects));
            served.extend(cluster.iter().cloned());
            if round == 0 || served != *before {
                objects[number] = render(number, &served)?;
                seen[number] = Some(served);
                changed = titles[number];
            }
        }
        if changed.is_empty() {
            return Ok(objects);
        }
    }
    bail!(
        "{changed} declares other kinds each time that the rest of the content is rendered\nhint: two charts declare a \
         kind only where the other one does not: set in the `values` of one of them who declares it"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Objects, settle};
    use crate::content::manifests::documents::{self, Object};

    fn definition(kind: &str) -> Vec<Object> {
        documents::read(
            &format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {kind}}}\nspec: {{group: x, names: {{kind: {kind}}}, versions: [{{name: v1, served: true}}]}}\n"
            ),
            "x",
        )
        .expect("objects")
    }

    #[test]
    fn a_chart_sees_what_the_box_and_all_other_content_serve() {
        let cluster = BTreeSet::from(["v1".to_owned()]);
        let mut calls = Vec::new();
        let sources = vec![Objects::Given(definition("M")), Objects::Rendered, Objects::Rendered];
        let objects = settle(&["m", "a", "b"], sources, &cluster, &mut |number, versions| {
            calls.push((number, versions.iter().cloned().collect::<Vec<_>>()));
            Ok(if number == 2 { definition("B") } else { Vec::new() })
        });
        assert_eq!(objects.expect("settled")[2], definition("B"));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        // The first chart is rendered again for what the second one adds, the second one does not see itself.
        let expected =
            [(1, words("v1 x/v1 x/v1/M")), (2, words("v1 x/v1 x/v1/M")), (1, words("v1 x/v1 x/v1/B x/v1/M"))];
        assert_eq!(calls, expected);
    }

    #[test]
    fn charts_that_never_agree_are_refused() {
        let sources = vec![Objects::Rendered, Objects::Rendered];
        let error = settle(&["a", "b"], sources, &BTreeSet::new(), &mut |number, versions| {
            // Each declares what the other one does, but one of them only where it is not.
            let sees = versions.contains("x/v1/K");
            Ok(if (number == 0) == sees { definition("K") } else { Vec::new() })
        });
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("other kinds each time"), "{error}");
        // One that declares a kind where it is not does so beside another that does the same: the first one has it.
        let sources = vec![Objects::Rendered, Objects::Rendered];
        let objects = settle(&["a", "b"], sources, &BTreeSet::new(), &mut |_, versions| {
            Ok(if versions.contains("x/v1/K") { Vec::new() } else { definition("K") })
        });
        assert_eq!(objects.expect("settled"), [definition("K"), Vec::new()]);
    }
}

//! Which cores domains are pinned to: those of one NUMA node, no core twice, the same ones as before while that is possible.

use std::collections::{BTreeMap, BTreeSet};

/// Reads a list of CPUs as the kernel writes it, such as `0-4,54-60`.
pub fn parse(cpus: &str) -> Result<BTreeSet<u32>, String> {
    let mut found = BTreeSet::new();
    for part in cpus.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.trim().parse::<u32>().map_err(|_| format!("`{part}` is no number and no range of CPUs"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last - first > 65_535 {
            return Err(format!("`{part}` is no range of CPUs: it begins after its end, or is too long"));
        }
        found.extend(first..=last);
    }
    Ok(found)
}

/// The cores of each domain, or why it has none. `numa`: cores by NUMA node; `domains`: name and number of cores, in their
/// order; `before`: what they had.
pub fn assign(
    numa: &[BTreeSet<u32>],
    exclude: &BTreeSet<u32>,
    domains: &[(String, u32)],
    before: &BTreeMap<String, Vec<u32>>,
) -> BTreeMap<String, Result<Vec<u32>, String>> {
    let mut free: Vec<BTreeSet<u32>> = numa.iter().map(|cores| cores - exclude).collect();
    let mut found = BTreeMap::new();
    let all: BTreeSet<u32> = free.iter().flatten().copied().collect();
    // Those that have cores keep them; then the others take theirs.
    let keeps = |name: &String, count: u32| {
        before.get(name).filter(|had| had.len() == count as usize && had.iter().all(|core| all.contains(core)))
    };
    for (name, count) in domains {
        if let Some(had) =
            keeps(name, *count).filter(|had| had.iter().all(|core| free.iter().any(|node| node.contains(core))))
        {
            for node in &mut free {
                node.retain(|core| !had.contains(core));
            }
            found.insert(name.clone(), Ok(had.clone()));
        }
    }
    for (name, count) in domains {
        if found.contains_key(name) {
            continue;
        }
        let count = *count as usize;
        let place = free.iter_mut().filter(|node| node.len() >= count).min_by_key(|node| node.len());
        let cores = place.map(|node| {
            let cores: Vec<u32> = node.iter().copied().take(count).collect();
            node.retain(|core| !cores.contains(core));
            cores
        });
        let most = free.iter().map(BTreeSet::len).max().unwrap_or(0);
        let why = || {
            format!(
                "it needs {count} cores of one NUMA node, most that are free: {most}; hint: `cpuExclude`, or fewer vcpus"
            )
        };
        found.insert(name.clone(), cores.ok_or_else(why));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{assign, parse};

    fn set(list: &str) -> BTreeSet<u32> {
        parse(list).expect("a list")
    }

    fn of(pairs: &[(&str, u32)]) -> Vec<(String, u32)> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn lists_of_cpus_are_read_and_nonsense_is_told() {
        assert_eq!(set("0-2,54, 60-61"), BTreeSet::from([0, 1, 2, 54, 60, 61]));
        assert_eq!(set(""), BTreeSet::new());
        assert!(parse("4-1").expect_err("backwards").contains("`4-1`"));
        assert!(parse("a").expect_err("no number").contains("`a`"));
    }

    #[test]
    fn no_core_is_given_twice_and_none_that_is_excluded() {
        let numa = [set("0-3"), set("4-7")];
        let found = assign(&numa, &set("0-1"), &of(&[("a", 2), ("b", 3), ("c", 2)]), &BTreeMap::new());
        assert_eq!(found["a"], Ok(vec![2, 3]));
        assert_eq!(found["b"], Ok(vec![4, 5, 6]));
        assert!(
            found["c"].as_ref().expect_err("too few").contains("needs 2 cores of one NUMA node, most that are free: 1")
        );
    }

    #[test]
    fn a_domain_keeps_its_cores_when_another_one_comes_before_it() {
        let before = BTreeMap::from([("b".to_owned(), vec![0, 1])]);
        let found = assign(&[set("0-3")], &BTreeSet::new(), &of(&[("a", 2), ("b", 2)]), &before);
        assert_eq!((found["a"].clone(), found["b"].clone()), (Ok(vec![2, 3]), Ok(vec![0, 1])));
        let found = assign(&[set("0-3")], &set("0"), &of(&[("b", 2)]), &before);
        assert_eq!(found["b"], Ok(vec![1, 2]), "an excluded core is given up");
    }
}

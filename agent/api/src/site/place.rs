//! Where in a text a value stands: the line that a message names.

use granit_parser::{Event, Parser};

use super::check::{Key, Path};

/// An open collection: how far it was read.
enum Open {
    List(usize),
    Map(Option<String>),
}

/// Line of the value at `path` in the first document of `text`, from 1; that of the nearest value around it when it is not
/// there.
pub(super) fn line_of(text: &str, path: &Path) -> Option<usize> {
    let (mut open, mut best): (Vec<Open>, Option<(usize, usize)>) = (Vec::new(), None);
    for next in Parser::new_from_str(text) {
        let Ok((event, span)) = next else { break };
        let start = span.byte_range().map_or(0, |bytes| bytes.start);
        let (opens, scalar) = match &event {
            Event::SequenceStart(..) => (Some(Open::List(0)), None),
            Event::MappingStart(..) => (Some(Open::Map(None)), None),
            Event::Scalar(text, ..) => (None, Some(text.to_string())),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                step(&mut open);
                continue;
            }
            Event::DocumentEnd => break,
            _ => continue,
        };
        if let (Some(Open::Map(key @ None)), Some(name)) = (open.last_mut(), &scalar) {
            *key = Some(name.clone());
            continue;
        }
        let depth = matching(&open, path);
        if depth == open.len() && depth <= path.0.len() && best.is_none_or(|(found, _)| depth > found) {
            best = Some((depth, start));
        }
        match opens {
            Some(collection) => open.push(collection),
            None => step(&mut open),
        }
    }
    let (depth, start) = best.filter(|(depth, _)| *depth > 0)?;
    let _ = depth;
    Some(text.get(..start)?.matches('\n').count() + 1)
}

/// A value ended.
fn step(open: &mut [Open]) {
    match open.last_mut() {
        Some(Open::List(number)) => *number += 1,
        Some(Open::Map(key)) => *key = None,
        None => {}
    }
}

/// How many of the open collections stand on the path.
fn matching(open: &[Open], path: &Path) -> usize {
    let same = |(open, key): &(&Open, &Key)| match (open, key) {
        (Open::List(number), Key::Index(index)) => number == index,
        (Open::Map(Some(found)), Key::Name(name)) => found == name,
        _ => false,
    };
    open.iter().zip(&path.0).take_while(same).count()
}

#[cfg(test)]
mod tests {
    use super::super::check::Path;
    use super::line_of;

    #[test]
    fn a_value_is_found_by_its_path() {
        let text = "a: 1\nnetworks:\n  dns: [ 1,\n    2 ]\n  interfaces:\n    - x: 1\n      y:\n        z: 3\n    - { x: 2 }\nlast: 3\n";
        let networks = Path::of("networks");
        for (path, line) in [
            (Path::of("a"), 1),
            (networks.key("dns").index(1), 4),
            (networks.key("interfaces").index(0).key("y.z"), 8),
            (networks.key("interfaces").index(1).key("x"), 9),
            (networks.key("interfaces").index(1).key("gateway"), 9),
            (Path::of("last"), 10),
        ] {
            assert_eq!(line_of(text, &path), Some(line), "{path}");
        }
        assert_eq!(line_of(text, &Path::of("nothing")), None);
    }
}

//! Key paths: where in a definition a value stands, such as `outputs[1].maxSize`.

use std::fmt;

/// One step into a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A key of a mapping.
    Key(String),
    /// A position in a list.
    Index(usize),
}

/// A key path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub Vec<Segment>);

impl KeyPath {
    /// The path of a key of the document.
    pub fn of(key: &str) -> Self {
        Self::default().key(key)
    }

    /// The path of a key of this mapping.
    pub fn key(&self, key: &str) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Key(key.to_owned()));
        longer
    }

    /// The path of an item of this list.
    pub fn index(&self, index: usize) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Index(index));
        longer
    }

    /// Whether it is the document itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The innermost key.
    pub fn last_key(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) => None,
        })
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if key.contains(['.', '[']) => write!(f, "[\"{key}\"]")?,
                Segment::Key(key) if i == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

//! A writer whose text can be read afterwards, for tests of what is told.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::lock;

/// The writer; clones share the text.
#[derive(Clone, Default)]
pub struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    /// What was written.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0)).into_owned()
    }

    /// Its lines.
    pub fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// Its lines, each a JSON value.
    pub fn json(&self) -> Vec<Value> {
        self.lines().iter().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }
}

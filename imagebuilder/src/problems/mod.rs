//! What is wrong with a file of the user, and how it is shown.
//!
//! ```text
//! definition  problems of a definition: line, column, key path, what was expected
//! render      them as the compiler-like text people read, and as JSON
//! medium      flaws of an image or device: place, what was found, what needs it
//! ```
//! It stands below everything that finds such problems, so that each of them can hand them up as an error.

mod definition;
mod medium;
mod render;

pub(crate) use self::definition::line_and_column;
pub use self::definition::{Problem, Problems, Severity};
pub use self::medium::{Damaged, Flaw, count};
pub use self::render::{render, summary, to_json};

//! Every route with every answer it may give. Router, OpenAPI document, the table of
//! `agent/src/rest/README.md`, table test and fuzz run go by this list.

use std::fmt::Write as _;

use super::Kind;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// POST on a collection.
    Create,
    /// GET on a collection.
    List,
    /// GET on an image.
    Get,
    /// HEAD on an image.
    Head,
    /// PUT on an image.
    Update,
    /// PATCH on an image.
    Upload,
    /// DELETE on an image.
    Delete,
    /// GET `/v1/storage`.
    Storage,
    /// GET `/openapi.json`.
    Document,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None.
    Empty,
    /// One line, `text/plain`.
    Text,
    /// [`super::Image`].
    Image,
    /// [`super::ImageList`].
    List,
    /// [`super::Storage`].
    Storage,
    /// [`crate::rest::Problem`].
    Problem,
    /// The document.
    Document,
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// What comes with it.
    pub body: Body,
    /// When, and which texts.
    pub when: &'static str,
}

/// A collection.
const COLLECTION: &str = "/v1/baremetalcluster/{owner}/{clustername}/{kind}";
/// An image of it.
const IMAGE: &str = "/v1/baremetalcluster/{owner}/{clustername}/{kind}/{imgname}";
/// What uploads take of the disk.
const STORAGE: &str = "/v1/storage";
/// The document.
const DOCUMENT: &str = "/openapi.json";

const fn text(status: u16, when: &'static str) -> Answer {
    Answer { status, body: Body::Text, when }
}

const fn empty(status: u16, when: &'static str) -> Answer {
    Answer { status, body: Body::Empty, when }
}

const fn problem(status: u16, when: &'static str) -> Answer {
    Answer { status, body: Body::Problem, when }
}

/// What every route may answer.
const DOOR: [Answer; 4] = [
    problem(401, "no token and no client certificate, or a wrong one"),
    problem(403, "the client certificate is for another owner"),
    problem(429, "too many wrong tokens from this address"),
    problem(503, "the box has not read its Site yet, or has no answer in time"),
];

const DISK: Answer = text(500, "the box's disk failed; with `compat` also what is 404 or 409 without");
const SPACE: Answer = text(507, "the quota of this kind, the number of images, or the disk is full");
const NAME: Answer = text(400, "a name in the path is not one");
const MISSING: Answer = text(404, "Image doesn't exist (500 with `compat`)");

const FORM: [Answer; 2] = [
    text(422, "not multipart, not JSON, or no part `file` (`Unable to process file`)"),
    text(413, "the form has more than 16 MiB"),
];

impl Operation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::List,
        Self::Get,
        Self::Head,
        Self::Update,
        Self::Upload,
        Self::Delete,
        Self::Storage,
        Self::Document,
    ];

    /// HTTP method.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Create => "post",
            Self::List | Self::Get | Self::Storage | Self::Document => "get",
            Self::Head => "head",
            Self::Update => "put",
            Self::Upload => "patch",
            Self::Delete => "delete",
        }
    }

    /// Path for a type, with placeholders in braces; the type does not matter where the path has none.
    pub fn path(self, kind: Kind) -> String {
        self.template().replace("{kind}", kind.name())
    }

    /// Path for any type, with placeholders in braces.
    pub const fn template(self) -> &'static str {
        match self {
            Self::Create | Self::List => COLLECTION,
            Self::Get | Self::Head | Self::Update | Self::Upload | Self::Delete => IMAGE,
            Self::Storage => STORAGE,
            Self::Document => DOCUMENT,
        }
    }

    /// Whether it may take as long as its sender needs.
    pub const fn is_slow(self) -> bool {
        matches!(self, Self::Upload)
    }

    /// One line for readers.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Create => "Announce an image",
            Self::List => "List images",
            Self::Get => "Tell an image",
            Self::Head => "Tell how much of an image is there",
            Self::Update => "Change what is said about an image",
            Self::Upload => "Send the rest of an image's bytes",
            Self::Delete => "Forget an image",
            Self::Storage => "Tell what uploads take of the disk",
            Self::Document => "This document",
        }
    }

    /// Every answer it may give.
    pub fn answers(self) -> Vec<Answer> {
        let own: &[&[Answer]] = match self {
            Self::Create => &[
                &[
                    Answer { status: 201, body: Body::Image, when: "announced; no bytes yet" },
                    text(
                        400,
                        "`Empty body`, `Missing name in POST request`, `Missing Owner in POST request`, `Improper upload length`, or a name or sha256 that is none",
                    ),
                    text(409, "Image already exists (500 with `compat`)"),
                    SPACE,
                    DISK,
                ],
                &FORM,
            ],
            Self::List => &[&[Answer { status: 200, body: Body::List, when: "one page" }, NAME, DISK]],
            Self::Get => &[&[Answer { status: 200, body: Body::Image, when: "the image" }, NAME, MISSING, DISK]],
            Self::Head => &[&[
                empty(200, "the image; headers Upload-Offset, Upload-Length, ETag once complete"),
                empty(400, "a name in the path is not one"),
                empty(404, "Image doesn't exist (500 with `compat`)"),
                empty(500, "the box's disk failed; with `compat` also no such image"),
            ]],
            Self::Update => &[
                &[
                    Answer { status: 201, body: Body::Image, when: "changed" },
                    text(
                        400,
                        "`Empty body`, `Missing name in PUT request`, `Missing Owner in PUT request`, or a name or sha256 that is none",
                    ),
                    text(404, "Update Error - Image doesn't exist (500 with `compat`)"),
                    text(409, "the length or sha256 of bytes that are there already, or an upload is in progress"),
                    SPACE,
                    DISK,
                ],
                &FORM,
            ],
            Self::Upload => &[&[
                empty(204, "taken and safe on the disk; header Upload-Offset. All bytes are there"),
                text(
                    400,
                    "bad Upload-Offset (empty body), or `Content length doesn't match upload length. Expected content length X got Y`, or fewer bytes came than announced",
                ),
                MISSING,
                text(409, "`Expected Offset X, actual offset Y`, or another upload of this image is in progress"),
                text(422, "`Upload already completed`, or the bytes are not those of the sha256: all are forgotten"),
                text(500, "no Content-Length, or the box's disk failed; with `compat` also no such image"),
                SPACE,
            ]],
            Self::Delete => &[&[
                empty(204, "forgotten; whoever reads it now reads it to its end"),
                NAME,
                MISSING,
                text(409, "in use: the users are named"),
                DISK,
            ]],
            Self::Storage => &[&[Answer { status: 200, body: Body::Storage, when: "now" }, DISK]],
            Self::Document => &[&[Answer { status: 200, body: Body::Document, when: "OpenAPI 3.1" }]],
        };
        own.iter().flat_map(|some| some.iter().copied()).chain(DOOR).collect()
    }
}

/// The routes as a table in Markdown.
pub fn table() -> String {
    let mut table = "| method | path | what |\n|---|---|---|\n".to_owned();
    for operation in Operation::ALL {
        let (method, path) = (operation.method().to_uppercase(), operation.template());
        let _ = writeln!(table, "| {method} | `{path}` | {} |", operation.summary());
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Operation, table};

    #[test]
    fn the_page_of_rest_has_the_table_of_this_list() {
        let page = include_str!("../../../src/rest/README.md");
        let table = table();
        assert!(page.contains(&table), "hint: this is the table that agent/src/rest/README.md needs:\n{table}");
    }

    #[test]
    fn no_status_is_listed_twice() {
        for operation in Operation::ALL {
            let statuses: Vec<u16> = operation.answers().iter().map(|answer| answer.status).collect();
            let unique: BTreeSet<u16> = statuses.iter().copied().collect();
            assert_eq!(unique.len(), statuses.len(), "{operation:?}: {statuses:?}");
        }
    }
}

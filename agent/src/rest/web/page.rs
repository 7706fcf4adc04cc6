//! The web page: one self-contained file, made from `page/` once at start.

use axum::body::Bytes;
use axum::http::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The page and the policy under which a browser may run it.
pub(super) struct Page {
    pub html: Bytes,
    pub policy: HeaderValue,
}

impl Page {
    pub(super) fn new() -> Self {
        let html = HTML.replace("/*style*/", STYLE).replace("/*script*/", SCRIPT);
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
        // Nothing but what is in the page itself, and requests to the box only.
        let policy = format!(
            "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'",
            hash(STYLE),
            hash(SCRIPT)
        );
        let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Self { html: Bytes::from(html), policy }
    }
}

#[cfg(test)]
mod tests {
    use super::{HTML, Page, SCRIPT, STYLE};

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_styles_nothing_inline() {
        for text in [HTML, STYLE, SCRIPT] {
            assert!(!text.contains("://"), "an address of elsewhere");
        }
        assert!(!HTML.contains("style="), "the policy forbids it");
        assert!(!HTML.contains("onclick="), "the policy forbids it");
        let page = Page::new();
        assert!(page.html.windows(10).any(|w| w == b"<title>Foo"));
        assert!(page.policy.to_str().expect("text").contains("script-src 'sha256-"));
    }
}

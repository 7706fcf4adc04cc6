//! What a file imports: every path that begins with `crate`, `self` or `super`, in `use` lines, in code and in macros.

use std::path::Path;

use anyhow::Context as _;
use proc_macro2::{Spacing, TokenStream, TokenTree};

/// A path that a module names.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// The file, as it was opened.
    pub file: String,
    /// Line of the path's last name, from 1.
    pub line: usize,
    /// The module that names it: names from the crate's root on.
    pub from: Vec<String>,
    /// What it names, from the crate's root on.
    pub to: Vec<String>,
}

/// All paths of a file. `module` is the module that the file holds.
pub fn read(file: &Path, module: &[String]) -> anyhow::Result<Vec<Import>> {
    let text = fs_err::read_to_string(file)?;
    let tokens: TokenStream =
        text.parse().map_err(|error| anyhow::anyhow!("{error}")).with_context(|| file.display().to_string())?;
    let mut reader = Reader { file: file.display().to_string(), module, found: Vec::new() };
    reader.code(tokens, module);
    Ok(reader.found)
}

struct Reader<'a> {
    file: String,
    module: &'a [String],
    found: Vec<Import>,
}

impl Reader<'_> {
    /// Goes through code that stands in `scope`: the file's module, or one that is written inside it.
    fn code(&mut self, tokens: TokenStream, scope: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match (&tokens[at], tokens.get(at + 1), tokens.get(at + 2)) {
                (TokenTree::Ident(word), Some(TokenTree::Ident(name)), Some(TokenTree::Group(body)))
                    if word == "mod" =>
                {
                    let inner = [scope, &[name.to_string()]].concat();
                    self.code(body.stream(), &inner);
                    at += 3;
                }
                (TokenTree::Ident(word), Some(TokenTree::Punct(colon)), _) if colon.as_char() == ':' => {
                    match start(&word.to_string(), scope) {
                        Some(path) if colon.spacing() == Spacing::Joint => {
                            at = self.path(&tokens, at + 1, path);
                        }
                        _ => at += 1,
                    }
                }
                (TokenTree::Group(group), ..) => {
                    self.code(group.stream(), scope);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Follows a path from its first `::` on; returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, mut path: Vec<String>) -> usize {
        let mut line = 0;
        while is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1)) {
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(name)) if name == "super" => {
                    path.pop();
                    line = name.span().start().line;
                }
                Some(TokenTree::Ident(name)) => {
                    path.push(name.to_string());
                    line = name.span().start().line;
                }
                Some(TokenTree::Group(group)) => {
                    self.tree(group.stream(), &path);
                    return at + 3;
                }
                // A glob, or generic arguments.
                _ => break,
            }
            at += 3;
        }
        if line > 0 {
            self.found.push(Import { file: self.file.clone(), line, from: self.module.to_vec(), to: path });
        }
        at
    }

    /// The branches of a `use` that stand in braces.
    fn tree(&mut self, tokens: TokenStream, path: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(name) if name == "as" => at += 2,
                TokenTree::Ident(name) => {
                    let mut branch = path.to_vec();
                    if name != "self" {
                        branch.push(name.to_string());
                    }
                    if is_colon(tokens.get(at + 1)) {
                        at = self.path(&tokens, at + 1, branch);
                    } else {
                        let line = name.span().start().line;
                        self.found.push(Import {
                            file: self.file.clone(),
                            line,
                            from: self.module.to_vec(),
                            to: branch,
                        });
                        at += 1;
                    }
                }
                _ => at += 1,
            }
        }
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// The module that a path's first word means, in `scope`.
fn start(word: &str, scope: &[String]) -> Option<Vec<String>> {
    match word {
        "crate" => Some(Vec::new()),
        "self" => Some(scope.to_vec()),
        "super" => Some(scope[..scope.len().saturating_sub(1)].to_vec()),
        _ => None,
    }
}

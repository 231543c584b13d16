//! Wishes of a client about a tree, beside its names.

use serde::{Deserialize, Serialize};

/// The symbolic links of a tree that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// Links that lead to what is in the tree.
    #[default]
    Inside,
    /// Every link, as it is.
    All,
    /// No link.
    None,
}

/// Wishes about a tree, as requests have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Wishes {
    pub(super) links: Links,
    /// Patterns of what is neither sent nor removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) exclude: Vec<String>,
    /// Entries that the sender has not are removed at the end.
    pub(super) delete: bool,
    /// Nothing is changed: it is only told what would be.
    pub(super) dry_run: bool,
    /// The disk is left alone at the end.
    pub(super) no_sync: bool,
    /// All files are there: only what comes behind them is left to do.
    pub(super) closing: bool,
}

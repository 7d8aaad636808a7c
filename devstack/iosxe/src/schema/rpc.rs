//! The input of the operations of `Cisco-IOS-XE-rpc`, revision 2025-07-10, as far as a device offers them. `place` and
//! `operation` check what is mandatory, and the patterns of file names.

use super::Node::{Container, Leaf};
use super::{Field, Node, Type};

const TEXT: Node = Leaf(Type::Text { least: 0, most: usize::MAX, allowed: |_| true });
const APP: &[Field] = &[("appid", TEXT)];
const PACKAGE: &[Field] = &[("appid", TEXT), ("package", TEXT)];
/// The operation is not offered, and its fields are not checked.
const OTHER: Node = Leaf(Type::Any);

/// The input of `app-hosting`: a choice of one.
pub(crate) const APP_HOSTING: Node = Container(&[
    ("install", Container(PACKAGE)),
    ("uninstall", Container(APP)),
    ("activate", Container(APP)),
    ("deactivate", Container(APP)),
    ("start", Container(APP)),
    ("stop", Container(APP)),
    ("upgrade", Container(PACKAGE)),
    ("verification", OTHER),
    ("move", OTHER),
]);

/// The input of `copy`.
pub(crate) const COPY: Node =
    Container(&[("source-drop-node-name", TEXT), ("destination-drop-node-name", TEXT)]);

/// The input of `delete`.
pub(crate) const DELETE: Node = Container(&[("filename-drop-node-name", TEXT)]);

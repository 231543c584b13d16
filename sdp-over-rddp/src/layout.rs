//! The fields of structures that a binding lays into memory of several processes, as numbers: two
//! builds that have the same may share it. No part of what the crate promises.

/// The offset of a field, and its octets.
pub type Field = (usize, usize);
/// The offset of a structure, and its fields.
pub type Structure = (usize, &'static [Field]);

/// Returns the fields of a structure, which are given by name: if one is missing, this does not
/// compile.
#[doc(hidden)]
#[macro_export]
macro_rules! fields {
    ($of:ident: $($name:ident),+ $(,)?) => {{
        const _: fn(&$of) = |$of { $($name: _),+ }| {};
        const FIELDS: &[$crate::layout::Field] = &[$((
            std::mem::offset_of!($of, $name),
            $crate::layout::octets_of(|of: &$of| &of.$name),
        )),+];
        FIELDS
    }};
}

pub use fields;

/// Returns the octets of the type to which `field` leads.
pub const fn octets_of<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

//! The fields of structures that lie in shared memory, as numbers.

/// The offset of a field, and its octets.
pub(crate) type Field = (usize, usize);
/// The offset of a structure, and its fields.
pub(crate) type Structure = (usize, &'static [Field]);

/// Returns the fields of a structure, which are given by name: if one is missing, this does not
/// compile.
macro_rules! fields {
    ($of:ident: $($name:ident),+ $(,)?) => {{
        const _: fn(&$of) = |$of { $($name: _),+ }| {};
        const FIELDS: &[$crate::fields::Field] = &[$((
            std::mem::offset_of!($of, $name),
            $crate::fields::octets_of(|of: &$of| &of.$name),
        )),+];
        FIELDS
    }};
}

pub(crate) use fields;

/// Returns the octets of the type to which `field` leads.
pub(crate) const fn octets_of<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

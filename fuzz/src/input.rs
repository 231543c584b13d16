//! Structured inputs that can be read from octets and written back to them.
//!
//! `arbitrary` reads. [`Encode`] is its inverse, which `arbitrary` does not have, and by which the
//! seeds are made. For an inverse to exist, everything is read from front to back: a choice is one
//! octet, and a [`Tail`] extends to the end of the input. This also keeps a mutation in one
//! operation from changing the meaning of those behind it.

use arbitrary::{Arbitrary, Result, Unstructured};

/// The inverse of [`Arbitrary`]: writes octets that it reads as this value.
pub trait Encode {
    /// Appends the octets.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns only these octets.
    fn octets(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

macro_rules! encode_numbers {
    ($($number:ty),*) => {$(
        impl Encode for $number {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}

encode_numbers!(u8, u16, u32, u64);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

/// Some octets, with their number in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Octets(pub Vec<u8>);

impl<'a> Arbitrary<'a> for Octets {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let len = usize::from(u16::arbitrary(u)?).min(u.len());
        Ok(Octets(u.bytes(len)?.to_vec()))
    }
}

impl Encode for Octets {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u16).encode(out);
        out.extend(&self.0);
    }
}

/// The rest of the input, at most `MAX` values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail<T, const MAX: usize>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>, const MAX: usize> Arbitrary<'a> for Tail<T, MAX> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut values = Vec::new();
        while !u.is_empty() && values.len() < MAX {
            values.push(T::arbitrary(u)?);
        }
        Ok(Tail(values))
    }
}

impl<T: Encode, const MAX: usize> Encode for Tail<T, MAX> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|value| value.encode(out));
    }
}

/// Declares structs and enums that can be read and written.
macro_rules! inputs {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl<'a> arbitrary::Arbitrary<'a> for $name {
            fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
                $(let $field = <$type as arbitrary::Arbitrary>::arbitrary(u)?;)*
                Ok($name { $($field,)* })
            }
        }

        impl $crate::input::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::input::Encode::encode(&self.$field, out);)*
            }
        }
    )*};
}

/// Declares an enum that can be read and written; one octet chooses the variant.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident { $($field:ident: $type:ty),* $(,)? },)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the variants say what the fields are")]
        pub enum $name { $($(#[$variant_meta])* $variant { $($field: $type,)* },)* }

        impl<'a> arbitrary::Arbitrary<'a> for $name {
            fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
                type Reader<'a> = fn(&mut arbitrary::Unstructured<'a>) -> arbitrary::Result<$name>;
                let readers: &[Reader<'a>] = &[$(|_u| {
                    $(let $field = <$type as arbitrary::Arbitrary>::arbitrary(_u)?;)*
                    Ok($name::$variant { $($field,)* })
                },)*];
                let chosen = u8::arbitrary(u)?;
                readers[usize::from(chosen) % readers.len()](u)
            }
        }

        impl $crate::input::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let mut _number = 0u8;
                $(
                    if let $name::$variant { $($field,)* } = self {
                        out.push(_number);
                        $($crate::input::Encode::encode($field, out);)*
                        return;
                    }
                    _number += 1;
                )*
            }
        }
    };
}

pub(crate) use {choice, inputs};

#[cfg(test)]
mod tests {
    use super::*;

    inputs! {
        pub struct Whole {
            flag: bool,
            number: u32,
            maybe: Option<u16>,
            rest: Tail<Part, 9>,
        }
    }

    choice! {
        pub enum Part {
            Nothing {},
            Some { octets: Octets, number: u64 },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let whole = Whole {
            flag: true,
            number: 0x0102_0304,
            maybe: Some(7),
            rest: Tail(vec![
                Part::Nothing {},
                Part::Some { octets: Octets(b"octets".to_vec()), number: u64::MAX - 1 },
                Part::Nothing {},
            ]),
        };
        assert_eq!(Whole::arbitrary(&mut Unstructured::new(&whole.octets())).unwrap(), whole);
    }
}

//! Names and ids.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was written.
    #[error("a name cannot be empty")]
    Empty,
    /// More characters than allowed.
    #[error("a name has at most {most} characters, this one has {length}")]
    TooLong {
        /// Characters allowed.
        most: usize,
        /// Characters found.
        length: usize,
    },
    /// A character that is not allowed, or not at its place.
    #[error("{0}")]
    Shape(&'static str),
}

fn check_length(text: &str, most: usize) -> Result<(), NameError> {
    match text.chars().count() {
        0 => Err(NameError::Empty),
        length if length > most => Err(NameError::TooLong { most, length }),
        _ => Ok(()),
    }
}

const HOST_SHAPE: &str =
    "a name is made of a-z, 0-9 and `-`, begins with a letter and does not end with `-`";

fn check_host(text: &str) -> Result<(), NameError> {
    check_length(text, 40)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let shaped = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(plain)
        && !text.ends_with('-');
    if shaped { Ok(()) } else { Err(NameError::Shape(HOST_SHAPE)) }
}

const MARK_SHAPE: &str = "only A-Z, a-z, 0-9, `.`, `_` and `-` can stand in a mark";

fn check_mark_value(text: &str, most: usize) -> Result<(), NameError> {
    check_length(text, most)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.chars().all(plain) { Ok(()) } else { Err(NameError::Shape(MARK_SHAPE)) }
}

const SESSION_SHAPE: &str =
    "a session's name is made of A-Z, a-z, 0-9, `.`, `_` and `-`, and does not begin with `.`";

/// Whether a text can name a session; the helper has the same rule.
pub(crate) fn check_session(text: &str) -> Result<(), NameError> {
    check_length(text, 60)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let shaped = !text.starts_with('.') && text.chars().all(plain);
    if shaped { Ok(()) } else { Err(NameError::Shape(SESSION_SHAPE)) }
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                let check: fn(&str) -> Result<(), NameError> = $check;
                check(&text)?;
                Ok(Self(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text! {
    /// What the user calls a host: `[a-z]([a-z0-9-]*[a-z0-9])?`, at most 40 characters.
    HostName, check_host
}
checked_text! {
    /// What the user calls an account of a provider; shaped like a [`HostName`].
    AccountName, check_host
}
checked_text! {
    /// The id of a fleet, in every mark. Characters `[A-Za-z0-9._-]`, at most 64.
    FleetId, |text| {
        // It names a folder of the state, so `.` and `..` are out.
        if text.starts_with('.') { return Err(NameError::Shape("a fleet id does not begin with `.`")); }
        check_mark_value(text, 64)
    }
}
checked_text! {
    /// Random text that differs for every machine ever made.
    Nonce, |text| check_mark_value(text, 64)
}
checked_text! {
    /// What the provider calls a machine: visible ASCII, at most 256 characters.
    MachineId, |text| {
        check_length(text, 256)?;
        if text.chars().all(|c| c.is_ascii_graphic()) { Ok(()) }
        else { Err(NameError::Shape("a machine id is visible ASCII")) }
    }
}

impl MachineId {
    /// The beginning, as people write ids.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl FleetId {
    /// Two words and four hex digits from random bytes, such as `quiet-otter-7f3a`.
    pub fn from_random(bytes: [u8; 4]) -> Self {
        const MOODS: [&str; 16] = [
            "quiet", "brave", "early", "gentle", "happy", "lucid", "mellow", "nimble", "patient",
            "plain", "silver", "steady", "sunny", "tidy", "vivid", "warm",
        ];
        const ANIMALS: [&str; 16] = [
            "otter", "heron", "badger", "falcon", "gecko", "hare", "ibis", "lynx", "marten",
            "newt", "owl", "puffin", "raven", "seal", "tern", "wren",
        ];
        let word = |list: [&'static str; 16], byte: u8| list[usize::from(byte % 16)];
        let [mood, animal, high, low] = bytes;
        Self(format!("{}-{}-{high:02x}{low:02x}", word(MOODS, mood), word(ANIMALS, animal)))
    }
}

impl Nonce {
    /// Sixteen random bytes in hex.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(hex(&bytes))
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_short_lower_case_words() {
        for good in ["a", "dev", "a1", "a-b", "a--b", &"a".repeat(40)] {
            assert!(HostName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "1a", "a b", "ä", &"a".repeat(41)] {
            assert!(HostName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn random_ids_are_valid() {
        let fleet = FleetId::from_random([255, 16, 0, 10]);
        assert_eq!(fleet.as_str(), "warm-otter-000a");
        assert!(FleetId::new(fleet.as_str()).is_ok());
        assert!(Nonce::new(Nonce::from_random([7; 16]).as_str()).is_ok());
    }

    #[test]
    fn a_fleet_id_cannot_leave_its_folder() {
        for bad in ["..", ".", "a/b", ""] {
            assert!(FleetId::new(bad).is_err(), "{bad}");
        }
    }
}

//! How large a machine is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of memory or disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "super::TextOrNumber", into = "String")]
pub struct Bytes(pub u64);

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A number stands alone.
    #[error("a size needs a unit: `{0}GiB`, `{0}MiB` or `{0}GB`")]
    NoUnit(String),
    /// The unit is not one of ours.
    #[error("`{unit}` is no unit of size (KiB, MiB, GiB, TiB, KB, MB, GB, TB){}", meant(.number, .unit))]
    Unit {
        /// What stands before it.
        number: String,
        /// What was written.
        unit: String,
    },
    /// What stands before the unit is not a whole number above zero.
    #[error("a size is a whole number above zero with a unit, such as `4GiB` or `512MiB`")]
    Number,
    /// More than any machine has.
    #[error("`{0}` is larger than any machine")]
    TooLarge(String),
}

/// What somebody means who writes `2g`, `2gb` or `2Gi`.
fn meant(number: &str, unit: &str) -> String {
    let first = unit.get(..1).unwrap_or_default().to_ascii_uppercase();
    let near = UNITS.into_iter().find(|(name, _)| name.starts_with(&first) && unit.len() <= 3);
    match near {
        Some((name, _)) if !first.is_empty() => format!("; did you mean `{number}{name}`?"),
        _ => String::new(),
    }
}

/// The largest first.
const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
];

/// 1 PiB: above it a size is a slip of the pen.
const MOST: u64 = 1 << 50;

impl FromStr for Bytes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        if number.is_empty() || unit.starts_with(['.', ',']) {
            return Err(SizeError::Number);
        }
        if unit.is_empty() {
            return Err(SizeError::NoUnit(number.into()));
        }
        let (_, factor) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| SizeError::Unit { number: number.into(), unit: unit.into() })?;
        let too_large = || SizeError::TooLarge(text.into());
        let number: u64 = number.parse().map_err(|_| too_large())?;
        let bytes = number.checked_mul(factor).filter(|b| *b <= MOST).ok_or_else(too_large)?;
        if bytes == 0 { Err(SizeError::Number) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<super::TextOrNumber> for Bytes {
    type Error = SizeError;
    fn try_from(text: super::TextOrNumber) -> Result<Self, SizeError> {
        String::from(text).parse()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        bytes.to_string()
    }
}

impl fmt::Display for Bytes {
    /// The largest unit that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.into_iter().find(|(_, factor)| self.0.is_multiple_of(*factor));
        match exact {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// What a machine has, or should have. `None`: not known, or not for us to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
}

impl Size {
    /// This size with what it lacks taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cpus: self.cpus.or(other.cpus),
            memory: self.memory.or(other.memory),
            disk: self.disk.or(other.disk),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.cpus.map(|n| if n == 1 { "1 cpu".into() } else { format!("{n} cpus") }));
        parts.extend(self.memory.map(|memory| format!("{memory} memory")));
        parts.extend(self.disk.map(|disk| format!("{disk} disk")));
        f.write_str(&parts.join(", "))
    }
}

/// A size with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// 1 cpu, 2 GiB, 20 GiB.
    Small,
    /// 2 cpus, 4 GiB, 40 GiB: what a host gets that names no size.
    Medium,
    /// 4 cpus, 8 GiB, 80 GiB.
    Large,
    /// 8 cpus, 16 GiB, 160 GiB.
    Xlarge,
}

impl Preset {
    /// Every preset by its word.
    pub const WORDS: [(&str, Self); 4] = [
        ("small", Self::Small),
        ("medium", Self::Medium),
        ("large", Self::Large),
        ("xlarge", Self::Xlarge),
    ];

    /// What the preset stands for.
    pub fn size(self) -> Size {
        let (cpus, memory, disk) = match self {
            Self::Small => (1, 2, 20),
            Self::Medium => (2, 4, 40),
            Self::Large => (4, 8, 80),
            Self::Xlarge => (8, 16, 160),
        };
        let gib = |n: u64| Some(Bytes(n << 30));
        Size { cpus: Some(cpus), memory: gib(memory), disk: gib(disk) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit_and_keep_their_value() {
        for (text, bytes) in [("4GiB", 4 << 30), ("4GB", 4_000_000_000), ("512 MiB", 512 << 20)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for bad in ["", "4", "4gb", "0.5GiB", "-1GiB", "1e9GiB", "0GiB", "GiB", "99999999TiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_printed_size_reads_back() {
        for bytes in [1 << 30, 1_500_000_000, 3 << 29, 1024, 20_000_000_000] {
            let bytes = Bytes(bytes);
            assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
        assert_eq!(Bytes(4_000_000_000).to_string(), "4GB", "not 3906250KiB");
    }

    #[test]
    fn a_unit_of_another_tool_is_understood_in_the_message() {
        let message = |text: &str| text.parse::<Bytes>().unwrap_err().to_string();
        assert!(message("2g").contains("did you mean `2GiB`?"), "{}", message("2g"));
        assert!(message("512mb").contains("did you mean `512MiB`?"));
        assert!(!message("2 parsecs").contains("did you mean"));
    }
}

//! Spans of time, points in time, and what a host does with power.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A length of time above zero, as people write it: `90s`, `30m`, `1h 30m`, `2d`, `1w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "super::TextOrNumber", into = "String")]
pub struct Span(pub Duration);

/// Why a text is no span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// A number stands alone.
    #[error("a duration needs a unit: `{0}s`, `{0}m`, `{0}h` or `{0}d`")]
    NoUnit(String),
    /// It would end at once.
    #[error("a duration is longer than zero; `never` is the only way to say never")]
    Zero,
    /// Anything else.
    #[error("`{text}` is no duration ({why}): write `30m`, `1h 30m`, `2d` or `1w`")]
    Shape {
        /// What was written.
        text: String,
        /// The parser's word for it.
        why: String,
    },
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let text = text.trim();
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
            return Err(SpanError::NoUnit(text.into()));
        }
        let shape = |why: String| SpanError::Shape { text: text.into(), why };
        let span = humantime::parse_duration(text).map_err(|error| {
            let why = error.to_string();
            shape(why.split(',').next().unwrap_or_default().into())
        })?;
        // A century: longer is a slip of the pen, and would overflow sums with the clock.
        if span > Duration::from_secs(100 * 365 * 86_400) {
            return Err(shape("longer than a century".into()));
        }
        if span.is_zero() { Err(SpanError::Zero) } else { Ok(Self(span)) }
    }
}

impl TryFrom<super::TextOrNumber> for Span {
    type Error = SpanError;
    fn try_from(text: super::TextOrNumber) -> Result<Self, SpanError> {
        String::from(text).parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

/// When an idle machine stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "super::TextOrNumber", into = "String")]
pub enum IdleStop {
    /// Only when told to.
    Never,
    /// After nothing worked and nobody was present for so long.
    After(Span),
}

impl FromStr for IdleStop {
    type Err = SpanError;
    fn from_str(text: &str) -> Result<Self, SpanError> {
        if text == "never" { Ok(Self::Never) } else { text.parse().map(Self::After) }
    }
}

impl TryFrom<super::TextOrNumber> for IdleStop {
    type Error = SpanError;
    fn try_from(text: super::TextOrNumber) -> Result<Self, SpanError> {
        String::from(text).parse()
    }
}

impl From<IdleStop> for String {
    fn from(idle_stop: IdleStop) -> String {
        idle_stop.to_string()
    }
}

impl fmt::Display for IdleStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::After(span) => span.fmt(f),
        }
    }
}

/// What the user wants of a host's power.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// Woken by a person, stopped when idle.
    #[default]
    OnDemand,
    /// Always running.
    On,
    /// Always stopped.
    Off,
}

impl Power {
    /// Every value by its word.
    pub const WORDS: [(&str, Self); 3] =
        [("on-demand", Self::OnDemand), ("on", Self::On), ("off", Self::Off)];
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.into_iter().find(|(_, power)| power == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

/// A point in time, in whole seconds since 1970 (UTC).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The clock's time. Only the edges call it; everything else is told the time.
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// How long before `later` this was; zero if it was not.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_secs(later.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Timestamp {
    /// As RFC 3339 in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Beyond the year 9999 the format has no answer; a hostile mark may say so.
        const LAST: u64 = 253_402_300_799;
        let time = UNIX_EPOCH + Duration::from_secs(self.0.min(LAST));
        write!(f, "{}", humantime::format_rfc3339_seconds(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_units_and_an_end() {
        for (text, seconds) in [("90s", 90), ("1h 30m", 5400), ("2d", 172_800), ("1w", 604_800)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_secs(seconds))), "{text}");
        }
        for bad in ["", "30", "0s", "1h30", "off", "1d2x", "-5m", "never", "9999999y"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        assert_eq!("never".parse(), Ok(IdleStop::Never));
    }

    #[test]
    fn any_timestamp_prints() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}

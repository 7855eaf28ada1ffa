//! Everything that is wrong with a file, each at its place.

use std::ops::Range;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Bytes of the text that it is about.
    pub span: Range<usize>,
    /// What is wrong, in one line.
    pub message: String,
    /// What to write instead, if that is known.
    pub help: Option<String>,
    /// Only worth a word: the file is used all the same.
    pub warning: bool,
}

/// Problems in the order of their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds an error.
    pub(crate) fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, message.into(), None, false);
    }

    /// Adds an error with what to write instead.
    pub(crate) fn error_help(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(span, message.into(), Some(help.into()), false);
    }

    /// Adds a warning with what to do about it.
    pub(crate) fn warning(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(span, message.into(), Some(help.into()), true);
    }

    fn push(&mut self, span: Range<usize>, message: String, help: Option<String>, warning: bool) {
        self.0.push(Problem { span, message, help, warning });
    }

    /// Whether the file cannot be used.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| !problem.warning)
    }

    pub(crate) fn sort(&mut self) {
        self.0.sort_by_key(|problem| (problem.span.start, problem.span.end));
        self.0.dedup();
    }

    pub(crate) fn count_words(&self) -> String {
        match self.0.iter().filter(|problem| !problem.warning).count() {
            1 => "1 error".into(),
            count => format!("{count} errors"),
        }
    }
}

/// The nearest of `words`, if it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    words
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= candidate.len().max(word.len()).div_ceil(3) && *distance < candidate.len()
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean", else the list of what there is.
pub(crate) fn suggest(word: &str, words: &[&str]) -> String {
    match nearest(word, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there is: {}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let words = ["idle_stop", "busy_lease", "power", "name"];
        assert_eq!(nearest("idle-stop", words), Some("idle_stop"));
        assert_eq!(nearest("pwoer", words), Some("power"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(suggest("nam", &words), "did you mean `name`?");
    }
}

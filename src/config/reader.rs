//! Walks a parsed document key by key, noting every problem instead of stopping at the first.

use std::cell::RefCell;
use std::ops::Range;

use serde::de::{DeserializeOwned, IntoDeserializer as _};
use toml_edit::{Item, TableLike, Value};

use super::problem::{Problems, suggest};

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// One table being read. Keys are taken one by one; what nobody took is unknown.
pub(super) struct Reader<'a> {
    table: &'a dyn TableLike,
    /// What the table is called in messages, such as `[[host]]`.
    title: &'static str,
    known: Vec<&'static str>,
    problems: &'a RefCell<Problems>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        table: &'a dyn TableLike,
        title: &'static str,
        problems: &'a RefCell<Problems>,
    ) -> Self {
        Self { table, title, known: Vec::new(), problems }
    }

    /// The item of a key, which is known from now on, and its place.
    pub(super) fn item(&mut self, key: &'static str) -> Option<At<&'a Item>> {
        self.known.push(key);
        let (name, item) = self.table.get_key_value(key)?;
        let span = item.span().or_else(|| name.span()).unwrap_or_default();
        Some(At { value: item, span })
    }

    /// The value of a key, read by `T`'s own rules.
    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<At<T>> {
        let at = self.item(key)?;
        self.parse(key, at)
    }

    /// The value of a key that is one word of a list.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<At<T>> {
        let At { value: text, span } = self.take::<String>(key)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(At { value: *value, span });
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.problems.borrow_mut().error_help(
            span,
            format!("`{text}` is no value of `{key}`"),
            suggest(&text, &names),
        );
        None
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, key: &str, at: At<&'a Item>) -> Option<At<T>> {
        let Some(value) = at.value.as_value() else {
            let message = format!("`{key}` is a value, not {}", kind_of(at.value));
            self.problems.borrow_mut().error(at.span, message);
            return None;
        };
        match T::deserialize(value.clone().into_deserializer()) {
            Ok(value) => Some(At { value, span: at.span }),
            Err(error) => {
                let message = format!("`{key}`: {}", plainly(error.message().trim(), at.value));
                self.problems.borrow_mut().error(at.span, message);
                None
            }
        }
    }

    /// The table of a key, inline or not.
    pub(super) fn table(&mut self, key: &'static str) -> Option<At<&'a dyn TableLike>> {
        let At { value, span } = self.item(key)?;
        let table = value.as_table_like();
        if table.is_none() {
            let message = format!("`{key}` is a table, not {}", kind_of(value));
            self.problems.borrow_mut().error(span.clone(), message);
        }
        table.map(|value| At { value, span })
    }

    /// Reports the keys that nobody took. `help` may know better than the nearest word.
    pub(super) fn finish(self, help: impl Fn(&str) -> Option<String>) {
        for (name, item) in self.table.iter() {
            if self.known.contains(&name) {
                continue;
            }
            let key_span = self.table.get_key_value(name).and_then(|(key, _)| key.span());
            let span = key_span.or_else(|| item.span()).unwrap_or_default();
            let help = help(name).unwrap_or_else(|| suggest(name, &self.known));
            let message = format!("`{name}` is no key of {}", self.title);
            self.problems.borrow_mut().error_help(span, message, help);
        }
    }
}

/// The words of a deserializer, for people who do not write Rust.
fn plainly(message: &str, found: &Item) -> String {
    let wanted = message.rsplit_once("expected ").filter(|_| message.starts_with("invalid "));
    let Some((_, wanted)) = wanted else { return message.into() };
    let wanted = match wanted {
        "u32" => "a whole number",
        "a string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other => other,
    };
    format!("expected {wanted}, not {}", kind_of(found))
}

pub(super) fn kind_of(item: &Item) -> &'static str {
    match item {
        Item::None => "nothing",
        Item::Table(_) => "a table",
        Item::ArrayOfTables(_) => "a list of tables",
        Item::Value(value) => match value {
            Value::String(_) => "a text",
            Value::Integer(_) => "a number",
            Value::Float(_) => "a fraction",
            Value::Boolean(_) => "a truth value",
            Value::Datetime(_) => "a date",
            Value::Array(_) => "a list",
            Value::InlineTable(_) => "a table",
        },
    }
}

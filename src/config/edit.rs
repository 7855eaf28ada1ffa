//! Edits of `hosts.toml` that leave every other byte as it was.
//!
//! `toml_edit` says where things stand and how values are written; the edit itself replaces only
//! those bytes, so comments, order, blank lines, line ends and a BOM cannot change. The result must
//! read as TOML again before it is accepted.

use std::ops::Range;
use std::path::Path;

use toml_edit::{ArrayOfTables, Document, Item, Table, Value};

use crate::files::{self, FileError};
use crate::model::{AccountName, FleetId, HostName, Size};

const BOM: &str = "\u{feff}";

/// Why an edit could not be made. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file does not read as TOML, before or after the edit.
    #[error("the edit would not leave valid TOML")]
    Toml(#[from] toml_edit::TomlError),
    /// The host is not in the file.
    #[error("there is no host `{0}` in the file")]
    NoHost(HostName),
    /// The host is in the file already.
    #[error("there is a host `{0}` in the file already")]
    Exists(HostName),
    /// Hosts are not written as `[[host]]`.
    #[error("the hosts of the file are not written as `[[host]]`")]
    Shape,
    /// The file has a fleet already.
    #[error("the file has a fleet already")]
    HasFleet,
}

/// A host to add.
#[derive(Debug, Clone)]
pub struct NewHost {
    /// Its name.
    pub name: HostName,
    /// Its provider.
    pub provider: AccountName,
    /// What of its size is asked for.
    pub size: Size,
    /// Settings of `[host.machine]`.
    pub machine: Vec<(String, String)>,
}

/// A text being edited. Nothing is written before [`Edit::write`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    before: Option<String>,
    text: String,
}

impl Edit {
    /// Begins with the text of a file; `None` where there is no file yet.
    pub fn new(text: Option<&str>) -> Self {
        Self { before: text.map(String::from), text: text.unwrap_or_default().into() }
    }

    /// The text as edited so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the text unless somebody changed the file since it was read.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        files::replace(path, self.text.as_bytes(), Some(self.before.as_deref().map(str::as_bytes)))
    }

    /// Writes the fleet's id, below the comments that head the file.
    pub fn set_fleet(&mut self, fleet: &FleetId) -> Result<(), EditError> {
        if self.parse()?.get("fleet").is_some() {
            return Err(EditError::HasFleet);
        }
        let at = head_end(&self.text);
        let line = format!("fleet = {}\n", Value::from(fleet.as_str()));
        let next = self.text[at..].lines().next().unwrap_or_default().trim();
        let gap = if next.is_empty() || next.contains('=') { "" } else { "\n" };
        self.splice(at..at, &format!("{line}{gap}"))
    }

    /// Adds a host at the end.
    pub fn add_host(&mut self, host: &NewHost) -> Result<(), EditError> {
        if find(&self.parse()?, &host.name).is_ok() {
            return Err(EditError::Exists(host.name.clone()));
        }
        let mut block = String::new();
        if !self.text.trim_start_matches(BOM).is_empty() {
            block.push_str(if self.text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        block.push_str(&block_text(host));
        let end = self.text.len();
        self.splice(end..end, &block)
    }

    /// Sets a key of a host's own block to a text.
    pub fn set_key(&mut self, host: &HostName, key: &str, value: &str) -> Result<(), EditError> {
        let document = self.parse()?;
        let table = find(&document, host)?;
        let value = Value::from(value).to_string();
        if let Some(span) = table.get(key).and_then(Item::span) {
            return self.splice(span, &value);
        }
        let direct = table.iter().filter(|(_, item)| item.is_value());
        let last = direct.filter_map(|(_, item)| item.span()).map(|span| span.end).max();
        let last = last.or_else(|| table.span().map(|span| span.end)).ok_or(EditError::Shape)?;
        let at = line_end(&self.text, last);
        let gap = if self.text[..at].ends_with('\n') { "" } else { "\n" };
        self.splice(at..at, &format!("{gap}{key} = {value}\n"))
    }

    /// Removes a host's block with the comments that stand right above it.
    pub fn remove_host(&mut self, host: &HostName) -> Result<(), EditError> {
        let document = self.parse()?;
        let span = extent(find(&document, host)?).ok_or(EditError::Shape)?;
        let mut start = comments_start(&self.text, span.start);
        if start == 0 && self.text.starts_with(BOM) {
            start = BOM.len();
        }
        let end = skip_blank(&self.text, line_end(&self.text, span.end));
        if end == self.text.len() {
            // The last block: the blank lines that parted it from the one above go with it.
            let kept = self.text[..start].trim_end().len();
            start = if kept == 0 { 0 } else { line_end(&self.text, kept).min(start) };
        }
        self.splice(start..end, "")
    }

    fn parse(&self) -> Result<Document<String>, EditError> {
        Ok(Document::parse(self.text.clone())?)
    }

    fn splice(&mut self, range: Range<usize>, new: &str) -> Result<(), EditError> {
        let new = if self.text.contains("\r\n") { new.replace('\n', "\r\n") } else { new.into() };
        let mut text = self.text.clone();
        text.replace_range(range, &new);
        Document::parse(text.as_str())?;
        self.text = text;
        Ok(())
    }
}

fn block_text(host: &NewHost) -> String {
    let text = |value: &str| Value::from(value).to_string();
    let mut lines = vec![
        "[[host]]".to_owned(),
        format!("name = {}", text(host.name.as_str())),
        format!("provider = {}", text(host.provider.as_str())),
    ];
    if !host.size.is_empty() {
        let mut parts = Vec::new();
        parts.extend(host.size.cpus.map(|cpus| format!("cpus = {cpus}")));
        parts.extend(host.size.memory.map(|memory| format!("memory = \"{memory}\"")));
        parts.extend(host.size.disk.map(|disk| format!("disk = \"{disk}\"")));
        lines.push(format!("size = {{ {} }}", parts.join(", ")));
    }
    if !host.machine.is_empty() {
        lines.push("[host.machine]".into());
        lines.extend(host.machine.iter().map(|(key, value)| format!("{key} = {}", text(value))));
    }
    lines.join("\n") + "\n"
}

fn find<'d>(document: &'d Document<String>, name: &HostName) -> Result<&'d Table, EditError> {
    let hosts = match document.get("host") {
        None => return Err(EditError::NoHost(name.clone())),
        Some(item) => item.as_array_of_tables().ok_or(EditError::Shape)?,
    };
    let named = |table: &&Table| table.get("name").and_then(Item::as_str) == Some(name.as_str());
    ArrayOfTables::iter(hosts).find(named).ok_or_else(|| EditError::NoHost(name.clone()))
}

/// From a table's header to the end of the last thing in it, tables within it included.
fn extent(table: &Table) -> Option<Range<usize>> {
    let mut range = table.span()?;
    for (_, item) in table {
        let inner = match item {
            Item::Table(inner) => extent(inner),
            other => other.span(),
        };
        if let Some(inner) = inner {
            range.end = range.end.max(inner.end);
        }
    }
    Some(range)
}

/// Where the line that holds `at` ends, its line break included.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |offset| at + offset + 1)
}

/// Past the blank lines that begin at `at`.
fn skip_blank(text: &str, mut at: usize) -> usize {
    while at < text.len() {
        let end = line_end(text, at);
        if !text[at..end].trim().is_empty() {
            break;
        }
        at = end;
    }
    at
}

/// Back over the comment lines that stand right above the line of `at`.
fn comments_start(text: &str, at: usize) -> usize {
    let mut start = text[..at].rfind('\n').map_or(0, |found| found + 1);
    while start > 0 {
        let above = text[..start - 1].rfind('\n').map_or(0, |found| found + 1);
        // The file's schema line belongs to the file.
        let line = text[above..start].trim_start_matches(BOM).trim();
        if !line.starts_with('#') || line.starts_with("#:") {
            break;
        }
        start = above;
    }
    start
}

/// Where the comments that head a file end: a first block of comments that a blank line ends, or
/// else only the editor's `#:schema` line.
fn head_end(text: &str) -> usize {
    let begin = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let mut at = begin;
    let mut directives = begin;
    while at < text.len() {
        let end = line_end(text, at);
        let line = text[at..end].trim();
        if line.is_empty() && at > begin {
            return end;
        }
        if !line.starts_with('#') {
            return directives;
        }
        if line.starts_with("#:") && directives == at {
            directives = end;
        }
        at = end;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
#:schema ./hosts.schema.json
# Our hosts.

fleet = \"f\"   # do not change

# The first one.
[[host]]
name     = \"a\"    # aligned
provider = \"docker\"

[host.machine]
image = \"x\"  # image

# --- the others ---

# b, for tests
[[host]]
provider = 'docker'
name = 'b'
idle_stop = \"30m\" # half an hour

[provider.docker]
context = \"c\"

[[host]]
name = \"c\"
provider = \"local\"
# the end
";

    fn name(text: &str) -> HostName {
        HostName::new(text).unwrap()
    }

    fn edited(text: &str, act: impl FnOnce(&mut Edit) -> Result<(), EditError>) -> String {
        let mut edit = Edit::new(Some(text));
        act(&mut edit).unwrap();
        edit.text
    }

    #[test]
    fn setting_a_key_touches_its_value_alone() {
        let text = edited(FILE, |edit| edit.set_key(&name("b"), "idle_stop", "never"));
        assert_eq!(text, FILE.replace("\"30m\"", "\"never\""));
    }

    #[test]
    fn a_new_key_comes_after_the_last_of_its_block() {
        let text = edited(FILE, |edit| edit.set_key(&name("a"), "idle_stop", "2h"));
        let line = "provider = \"docker\"\n";
        assert_eq!(text, FILE.replacen(line, &format!("{line}idle_stop = \"2h\"\n"), 1));
    }

    #[test]
    fn a_removed_host_takes_only_its_own_comment() {
        let text = edited(FILE, |edit| edit.remove_host(&name("b")));
        let (head, rest) = FILE.split_once("# b, for tests").unwrap();
        let (_, tail) = rest.split_once("# half an hour\n\n").unwrap();
        assert_eq!(text, format!("{head}{tail}"));
        let text = edited(FILE, |edit| edit.remove_host(&name("a")));
        let (head, rest) = FILE.split_once("# The first one.").unwrap();
        let (_, tail) = rest.split_once("# image\n\n").unwrap();
        assert_eq!(text, format!("{head}{tail}"));
    }

    #[test]
    fn removing_the_last_host_leaves_no_blank_tail() {
        let text =
            "[[host]]\nname = \"a\"\n\n[[host]]\nname = \"b\"\n[host.machine]\nimage = \"x\"\n";
        assert_eq!(edited(text, |e| e.remove_host(&name("b"))), "[[host]]\nname = \"a\"\n");
        let only = "fleet = \"f\"\n\n[[host]]\nname = \"a\"\n";
        assert_eq!(edited(only, |e| e.remove_host(&name("a"))), "fleet = \"f\"\n");
    }

    #[test]
    fn adding_and_removing_a_host_gives_the_file_back() {
        let host = NewHost {
            name: name("new"),
            provider: AccountName::new("docker").unwrap(),
            size: Size { cpus: Some(2), ..Size::default() },
            machine: vec![("image".into(), "debian:\"odd\"".into())],
        };
        for text in [FILE, "", "fleet = \"f\"\n", &FILE.replace('\n', "\r\n"), "\u{feff}# x\n"] {
            let mut edit = Edit::new(Some(text));
            edit.add_host(&host).unwrap();
            assert!(edit.text.starts_with(text));
            assert!(edit.add_host(&host).is_err());
            edit.remove_host(&name("new")).unwrap();
            assert_eq!(edit.text, text);
        }
    }

    #[test]
    fn the_fleet_goes_below_the_head_of_the_file() {
        let fleet = FleetId::new("f").unwrap();
        let cases = [
            ("", "fleet = \"f\"\n"),
            ("[[host]]\n", "fleet = \"f\"\n\n[[host]]\n"),
            ("# of a\n[[host]]\n", "fleet = \"f\"\n\n# of a\n[[host]]\n"),
            ("#:schema x\n[[host]]\n", "#:schema x\nfleet = \"f\"\n\n[[host]]\n"),
            ("# head\n\n[[host]]\n", "# head\n\nfleet = \"f\"\n\n[[host]]\n"),
            (
                "\u{feff}# head\r\n\r\n[[host]]\r\n",
                "\u{feff}# head\r\n\r\nfleet = \"f\"\r\n\r\n[[host]]\r\n",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(edited(text, |edit| edit.set_fleet(&fleet)), expected);
        }
        assert!(Edit::new(Some(FILE)).set_fleet(&fleet).is_err());
    }

    #[test]
    fn a_host_that_is_not_there_is_said() {
        let mut edit = Edit::new(Some(FILE));
        assert!(matches!(edit.remove_host(&name("zz")), Err(EditError::NoHost(_))));
        assert!(matches!(edit.set_key(&name("zz"), "k", "v"), Err(EditError::NoHost(_))));
        assert_eq!(edit.text, FILE);
    }
}

//! Line drawing of the old kind: programs switch to a character set whose letters are lines and
//! corners. The terminal-state library knows none; this gives it the characters that are meant.

use std::borrow::Cow;

/// DEC's special graphics, for the bytes from 0x5f to 0x7e (VT220 programmer reference, table 2-4).
const GRAPHICS: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];
const FIRST: u8 = 0x5f;

/// Which sets a terminal has at hand, and which it uses.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sets {
    /// Whether G0 and G1 are special graphics.
    graphics: [bool; 2],
    /// The one in use.
    used: usize,
}

/// Where in a control sequence the bytes stand.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Ground,
    Escape,
    /// Which set is named next.
    Set(usize),
    /// In a sequence that a byte from `0` on ends, or from `@` on after a `[`.
    Sequence(u8),
    /// In a text for the terminal, such as its title.
    Text,
    TextEscape,
}

/// Follows what a program prints.
#[derive(Default)]
pub(crate) struct Charset {
    sets: Sets,
    saved: Sets,
    at: At,
}

impl Charset {
    /// The same with the characters that are meant.
    pub(crate) fn translate<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut meant: Option<Vec<u8>> = None;
        for (index, byte) in bytes.iter().enumerate() {
            if let Some(graphic) = self.take(*byte) {
                let meant = meant.get_or_insert_with(|| bytes[..index].to_vec());
                meant.extend_from_slice(graphic.encode_utf8(&mut [0; 4]).as_bytes());
            } else if let Some(meant) = &mut meant {
                meant.push(*byte);
            }
        }
        meant.map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// What puts a terminal with the usual sets into this state.
    pub(crate) fn formatted(&self) -> String {
        let [first, second] = self.sets.graphics;
        let words = [(first, "\x1b(0"), (second, "\x1b)0"), (self.sets.used == 1, "\x0e")];
        words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect()
    }

    /// Takes a byte; the character that it stands for where that is another.
    fn take(&mut self, byte: u8) -> Option<char> {
        self.at = match (self.at, byte) {
            (At::Text, 0x1b) => At::TextEscape,
            (At::TextEscape, b'\\') | (At::Text, 0x07) | (_, 0x18 | 0x1a) => At::Ground,
            (At::Text, _) => At::Text,
            (_, 0x1b) => At::Escape,
            (At::Ground, _) => return self.print(byte),
            (At::Escape | At::TextEscape, _) => self.escape(byte),
            (At::Set(set), b'0'..=b'~') => {
                self.sets.graphics[set] = byte == b'0';
                At::Ground
            }
            (At::Sequence(first), _) if (first..=b'~').contains(&byte) => At::Ground,
            (at, _) => at,
        };
        None
    }

    fn print(&mut self, byte: u8) -> Option<char> {
        match byte {
            0x0e => self.sets.used = 1,
            0x0f => self.sets.used = 0,
            FIRST..=b'~' if self.sets.graphics[self.sets.used] => {
                return Some(GRAPHICS[usize::from(byte - FIRST)]);
            }
            _ => {}
        }
        None
    }

    fn escape(&mut self, byte: u8) -> At {
        match byte {
            b'[' => return At::Sequence(b'@'),
            b']' | b'P' | b'X' | b'^' | b'_' => return At::Text,
            b'(' => return At::Set(0),
            b')' => return At::Set(1),
            b' '..=b'/' => return At::Sequence(b'0'),
            b'7' => self.saved = self.sets,
            b'8' => self.sets = self.saved,
            b'c' => *self = Self::default(),
            _ => {}
        }
        At::Ground
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(bytes: &[u8]) -> String {
        let mut whole = Charset::default();
        let all = whole.translate(bytes).into_owned();
        // However it is cut.
        let mut cut = Charset::default();
        let parts: Vec<u8> =
            bytes.chunks(1).flat_map(|part| cut.translate(part).into_owned()).collect();
        assert_eq!(parts, all);
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn lines_are_meant_where_a_program_switches_to_them() {
        assert_eq!(meant(b"lqk \x1b(0lqk~\x1b(Blqk"), "lqk \x1b(0┌─┐·\x1b(Blqk");
        assert_eq!(meant(b"\x1b)0x\x0ex\x0fx"), "\x1b)0x\x0e│\x0fx");
        assert_eq!(
            meant(b"\x1b(0\x1b[31mx\x1b]0;x\x07x\x1b]0;x\x1b\\x"),
            "\x1b(0\x1b[31m│\x1b]0;x\x07│\x1b]0;x\x1b\\│"
        );
        assert_eq!(meant(b"\x1b(0\x1b7\x1b(Bx\x1b8x\x1bcx"), "\x1b(0\x1b7\x1b(Bx\x1b8│\x1bcx");
        assert_eq!(meant("\x1b(0 AB\u{6f22} \x1b%Gx".as_bytes()), "\x1b(0 AB\u{6f22} \x1b%G│");
    }

    #[test]
    fn nothing_is_copied_where_nothing_is_meant_otherwise() {
        let mut charset = Charset::default();
        assert!(matches!(charset.translate(b"plain \x1b[31mtext"), Cow::Borrowed(_)));
        let _ = charset.translate(b"\x1b)0\x0e");
        assert_eq!(charset.formatted(), "\x1b)0\x0e");
    }
}

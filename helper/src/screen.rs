//! What a session's terminal shows now, so that whoever attaches sees it at once.

use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::charset::Charset;

/// Modes that a terminal may be in from before, back to their defaults: attributes, scroll region,
/// the normal screen, mouse, focus, paste, cursor, keypad and character sets.
const RESET: &str = "\x1b[0m\x1b[r\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\
                     \x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b(B\x1b)B\x0f";

/// The most lines of earlier output that are kept for one who asks.
const MOST_LINES: u32 = 5000;

/// Lines that left a screen at its top.
pub(crate) struct Scrollback {
    screen: Screen,
}

impl Scrollback {
    /// Of a screen of so many rows and columns, the last `lines`.
    pub(crate) fn new((rows, columns): (u16, u16), lines: u32) -> Self {
        Self { screen: Screen::keeping(rows, columns, lines.min(MOST_LINES) as usize) }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.screen.feed(bytes);
    }

    /// What prints them above an empty screen.
    pub(crate) fn lines(mut self) -> Vec<u8> {
        // They belong to the normal screen.
        self.screen.feed(b"\x1b[?1049l");
        let screen = &mut self.screen;
        catch_unwind(AssertUnwindSafe(|| screen.lines_above())).unwrap_or_default()
    }
}

/// A terminal's cells, cursor and modes.
pub(crate) struct Screen {
    parser: vt100::Parser,
    charset: Charset,
}

fn sides(rows: u16, columns: u16) -> (NonZeroU16, NonZeroU16) {
    let side = |side: u16| NonZeroU16::new(side).unwrap_or(NonZeroU16::MIN);
    (side(rows), side(columns))
}

impl Screen {
    pub(crate) fn new(rows: u16, columns: u16) -> Self {
        Self::keeping(rows, columns, 0)
    }

    /// Also keeps lines that leave it at its top.
    fn keeping(rows: u16, columns: u16, lines: usize) -> Self {
        let (rows, columns) = sides(rows, columns);
        Self { parser: vt100::Parser::new(rows, columns, lines), charset: Charset::default() }
    }

    fn lines_above(&mut self) -> Vec<u8> {
        let (rows, columns) = self.size();
        let screen = self.parser.screen_mut();
        let bottom = format!("\x1b[{rows};1H");
        // Below what the terminal shows: that is not the session's to write over.
        let mut text = [RESET, &bottom, "\r\n"].concat();
        let mut left = screen.scrollback_len();
        while left > 0 {
            screen.set_scrollback(left);
            for row in screen.rows_formatted(0, columns).take(left) {
                text.push_str(&row);
                text.push_str("\x1b[m\r\n");
            }
            left = left.saturating_sub(usize::from(rows));
        }
        // Off the screen, which is painted over next.
        text.push_str(&bottom);
        text.extend(std::iter::repeat_n('\n', usize::from(rows) - 1));
        text.into_bytes()
    }

    pub(crate) fn size(&self) -> (u16, u16) {
        let (rows, columns) = self.parser.screen().size();
        (rows.get(), columns.get())
    }

    /// Takes what the program printed. Whatever a program prints, its session lives: a parser that
    /// gives up begins anew with an empty screen.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let (rows, columns) = self.size();
        let bytes = self.charset.translate(bytes);
        if catch_unwind(AssertUnwindSafe(|| self.parser.process(&bytes))).is_err() {
            *self = Self::new(rows, columns);
        }
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let (high, wide) = sides(rows, columns);
        let resized = catch_unwind(AssertUnwindSafe(|| self.parser.set_size(high, wide)));
        if resized.is_err() {
            *self = Self::new(rows, columns);
        }
    }

    /// What makes a terminal, in whatever state, show this screen.
    pub(crate) fn paint(&self) -> Vec<u8> {
        let screen = self.parser.screen();
        let alternate = if screen.alternate_screen() { "\x1b[?1049h" } else { "" };
        let state = catch_unwind(AssertUnwindSafe(|| screen.state_formatted()));
        let state = state.unwrap_or_else(|_| "\x1b[H\x1b[J".into());
        [RESET, alternate, &state, &self.charset.formatted()].concat().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(screen: &Screen) -> Screen {
        let (rows, columns) = screen.size();
        let mut copy = Screen::new(rows, columns);
        copy.feed(b"\x1b[?1049h\x1b[?1000h\x1b[31mold \x1b[5;9r");
        copy.feed(&screen.paint());
        copy
    }

    fn shows(screen: &Screen) -> (String, (u16, u16), bool, bool) {
        let shown = screen.parser.screen();
        let modes = (shown.alternate_screen(), shown.bracketed_paste());
        let contents = shown.contents_formatted() + &screen.charset.formatted();
        (contents, shown.cursor_position(), modes.0, modes.1)
    }

    #[test]
    fn a_paint_shows_the_same_cells_cursor_and_modes() {
        let cases: [&[u8]; 6] = [
            b"plain\r\n$ ",
            b"\x1b[?1049h\x1b[2J\x1b[3;4H\x1b[38;5;208;1mcolour\x1b[0m\x1b[?2004h",
            "w\u{ef}de \u{6f22}\u{5b57} at the edge \u{6f22}".as_bytes(),
            b"\x1b[48;2;1;2;3m\x1b[K\x1b[5;1Hx\x1b[?1002h\x1b[?1006h\x1b[?25l",
            b"\x1b(0lqqk\x1b(B q \x1b)0\x0ex",
            b"\0\xff\xfe\x1b[999;999H\x1b[",
        ];
        for bytes in cases {
            let mut screen = Screen::new(6, 20);
            screen.feed(bytes);
            assert_eq!(shows(&again(&screen)), shows(&screen), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn lines_that_left_a_screen_come_back_above_it() {
        let mut text = String::new();
        for number in 0..300 {
            text.push_str(&format!("\x1b[3{}m  line {number} \u{6f22}\x1b[m\r\n", number % 8));
        }
        text.push_str(&"long ".repeat(9));
        text.push_str("\x1b[?1049halternate");
        let mut screen = Screen::keeping(6, 20, 500);
        let mut earlier = Scrollback::new((6, 20), 100);
        screen.feed(text.as_bytes());
        earlier.feed(text.as_bytes());
        let mut copy = Screen::keeping(6, 20, 500);
        copy.feed(b"$ simstim attach\r\n");
        copy.feed(&earlier.lines());
        copy.feed(&screen.paint());
        assert_eq!(shows(&copy), shows(&screen));
        let above = |screen: &mut Screen| {
            screen.feed(b"\x1b[?1049l");
            screen.parser.screen_mut().set_scrollback(100);
            let formatted: Vec<_> = screen.parser.screen().rows_formatted(0, 20).collect();
            (formatted, screen.parser.screen().contents())
        };
        assert_eq!(above(&mut copy), above(&mut screen));
    }

    #[test]
    fn any_size_and_any_bytes_are_survived() {
        let mut screen = Screen::new(0, 0);
        let mut seed: u32 = 7;
        for turn in 0..20_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = seed.to_le_bytes();
            screen.feed(&[0x1b, b'[', bytes[1] % 64 + 48, bytes[2], bytes[3] | 0x40]);
            if turn % 50 == 0 {
                screen.resize(u16::from(bytes[3] % 40), u16::from(bytes[2] % 90));
                let _ = screen.paint();
            }
        }
    }
}

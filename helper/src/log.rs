//! A session's output on disk: segments named by the offset of their first byte, the oldest dropped
//! whole. What could not be written (a full disk) is a gap between two names.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes of one segment.
const SEGMENT: u64 = 1 << 20;
/// Segments that are kept: 16 MiB.
const KEPT: usize = 16;

/// Appends to a log.
pub(crate) struct LogWriter {
    folder: PathBuf,
    file: Option<File>,
    /// Bytes in the current segment.
    filled: u64,
    /// Offset of the next byte.
    offset: u64,
}

impl LogWriter {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), file: None, filled: 0, offset: 0 }
    }

    /// Goes on after what is there.
    pub(crate) fn after(folder: &Path) -> Self {
        let last = segments(folder).last().copied().unwrap_or(0);
        let length = std::fs::metadata(segment_path(folder, last)).map_or(0, |data| data.len());
        Self { offset: last + length, ..Self::new(folder) }
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether what was printed from `offset` on is still to be had, as far as names tell.
    pub(crate) fn keeps(&self, offset: u64) -> bool {
        offset == self.offset || (offset < self.offset && keeps(&self.folder, offset))
    }

    /// Appends bytes. A disk that takes none loses them from the log, never from the program.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = usize::try_from(SEGMENT - self.filled).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            self.write(now);
            self.offset += now.len() as u64;
            rest = later;
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let fresh = self.file.is_none();
        let path = segment_path(&self.folder, self.offset);
        if fresh {
            let options = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
            self.file = options.ok();
            self.filled = 0;
        }
        let Some(file) = &mut self.file else { return };
        if file.write_all(bytes).is_err() {
            // A part may have been written: the next segment begins where the program is by then.
            self.file = None;
            if fresh && std::fs::metadata(&path).is_ok_and(|data| data.len() == 0) {
                let _ = std::fs::remove_file(&path);
            }
            return;
        }
        if fresh {
            self.prune();
        }
        self.filled += bytes.len() as u64;
        if self.filled >= SEGMENT {
            self.file = None;
        }
    }

    /// Drops the oldest segments beyond what is kept, now that a new one has its first bytes.
    fn prune(&self) {
        let size = |offset: &u64| {
            std::fs::metadata(segment_path(&self.folder, *offset)).map_or(0, |data| data.len())
        };
        let names = segments(&self.folder);
        // The new segment will fill up.
        let mut total: u64 = names.iter().rev().skip(1).map(size).sum::<u64>() + SEGMENT;
        for offset in &names[..names.len().saturating_sub(1)] {
            if total <= KEPT as u64 * SEGMENT {
                break;
            }
            total -= size(offset);
            let _ = std::fs::remove_file(segment_path(&self.folder, *offset));
        }
    }
}

/// Whether a log begins at `offset` or before.
pub(crate) fn keeps(folder: &Path, offset: u64) -> bool {
    segments(folder).first().is_some_and(|oldest| *oldest <= offset)
}

fn segment_path(folder: &Path, offset: u64) -> PathBuf {
    folder.join(format!("log.{offset:020}"))
}

/// Offsets of the segments that there are, in order.
fn segments(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let offsets =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("log.")?.parse().ok());
    let mut offsets: Vec<u64> = offsets.collect();
    offsets.sort_unstable();
    offsets
}

/// Reads a log, also while it grows.
pub(crate) struct LogReader {
    folder: PathBuf,
    offset: u64,
}

impl LogReader {
    /// Begins at the oldest byte that is kept.
    pub(crate) fn new(folder: &Path) -> Self {
        let offset = segments(folder).first().copied().unwrap_or(0);
        Self { folder: folder.into(), offset }
    }

    /// Begins at an offset.
    pub(crate) fn at(folder: &Path, offset: u64) -> Self {
        Self { folder: folder.into(), offset }
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes right at its offset, at most `most`; `None` where they are not kept.
    pub(crate) fn next(&mut self, most: usize) -> Option<Vec<u8>> {
        let offset = self.offset;
        let bytes = self.read(most);
        (!bytes.is_empty() && self.offset == offset + bytes.len() as u64).then_some(bytes)
    }

    /// The next bytes, at most `most`; empty where there are none yet. Skips what was dropped.
    pub(crate) fn read(&mut self, most: usize) -> Vec<u8> {
        loop {
            let names = segments(&self.folder);
            let Some(begin) = names.iter().rev().find(|begin| **begin <= self.offset) else {
                match names.first() {
                    Some(first) => self.offset = *first,
                    None => return Vec::new(),
                }
                continue;
            };
            let bytes = read_at(&segment_path(&self.folder, *begin), self.offset - begin, most);
            if !bytes.is_empty() {
                self.offset += bytes.len() as u64;
                return bytes;
            }
            match names.iter().find(|name| **name > self.offset) {
                Some(next) => self.offset = *next,
                None => return Vec::new(),
            }
        }
    }
}

fn read_at(path: &Path, at: u64, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path)
        && file.seek(SeekFrom::Start(at)).is_ok()
    {
        let _ = file.take(most as u64).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("simstim-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn read_all(reader: &mut LogReader) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let bytes = reader.read(70_000);
            if bytes.is_empty() {
                return all;
            }
            all.extend(bytes);
        }
    }

    #[test]
    fn the_last_sixteen_mebibytes_are_kept_with_their_offsets() {
        let folder = folder("bound");
        let mut writer = LogWriter::new(&folder);
        let bytes: Vec<u8> = (0..20 * SEGMENT + 5).map(|n| (n % 251) as u8).collect();
        for chunk in bytes.chunks(100_003) {
            writer.append(chunk);
        }
        let mut reader = LogReader::new(&folder);
        let begin = usize::try_from(reader.offset()).unwrap();
        let kept = read_all(&mut reader);
        assert!(kept.len() as u64 <= KEPT as u64 * SEGMENT);
        assert!(kept.len() as u64 > (KEPT as u64 - 1) * SEGMENT);
        assert!(kept == bytes[begin..], "the bytes are those of their offsets");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_reader_follows_a_writer() {
        let folder = folder("follow");
        let mut writer = LogWriter::new(&folder);
        let mut reader = LogReader::new(&folder);
        for round in 0..40_u8 {
            writer.append(&vec![round; 60_000]);
            assert_eq!(read_all(&mut reader), vec![round; 60_000]);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! The parsers of outside bytes, on the corpora of the fuzz targets and on every cut of them.

use std::path::Path;

use simstim::testing::outside::PARSERS;

#[test]
fn no_parser_of_outside_bytes_fails_on_its_corpus_or_a_part_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, parse) in PARSERS {
        let mut seeds = 0;
        for entry in std::fs::read_dir(root.join(name)).unwrap().flatten() {
            let bytes = std::fs::read(entry.path()).unwrap();
            parse(&bytes);
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
                parse(&bytes[..at]);
                parse(&bytes[at..]);
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x20;
                parse(&flipped);
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no corpus");
    }
}

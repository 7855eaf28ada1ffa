#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| simstim::testing::outside::hosts_file(bytes));

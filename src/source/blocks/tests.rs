use super::*;
use proptest::prelude::*;

/// A stream that hands out a few bytes at a time.
struct Trickle<'a> {
    data: &'a [u8],
    step: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.step.min(self.data.len()).min(into.len());
        into[..count].copy_from_slice(&self.data[..count]);
        self.data = &self.data[count..];
        Ok(count)
    }
}

/// Record ends by the rules, one byte after the other.
fn record_ends(data: &[u8], format: RowFormat) -> Vec<usize> {
    let (mut ends, mut quoted, mut field_start, mut at) = (Vec::new(), false, true, 0);
    while at < data.len() {
        let byte = data[at];
        match format {
            RowFormat::Delimited { delimiter } => {
                if quoted {
                    if byte == b'"' && data.get(at + 1) == Some(&b'"') {
                        at += 1;
                    } else if byte == b'"' {
                        quoted = false;
                    }
                    field_start = false;
                } else {
                    quoted = byte == b'"' && field_start;
                    field_start = byte == delimiter || byte == b'\n';
                    if byte == b'\n' {
                        ends.push(at + 1);
                    }
                }
            }
            RowFormat::JsonLines if byte == b'\n' => ends.push(at + 1),
            RowFormat::JsonLines => {}
        }
        at += 1;
    }
    if ends.last() != Some(&data.len()) && !data.is_empty() {
        ends.push(data.len());
    }
    ends
}

fn blocks(data: &[u8], format: RowFormat, step: usize, options: ReadOptions) -> Vec<Block> {
    let mut reader = BlockReader::new(Trickle { data, step }, format, options);
    let mut blocks = Vec::new();
    let mut block = Block::default();
    while reader.read_block(&mut block).unwrap() {
        blocks.push(block.clone());
    }
    assert!(!reader.read_block(&mut block).unwrap(), "the end is the end");
    blocks
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"a"[..],
        b",",
        b"\n",
        b"\r\n",
        b"\"",
        b"\"\"",
        b"\"x,\ny\"",
        b"\r",
        b"\0",
        b"\xff",
        b"bc",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn blocks_are_the_stream_cut_at_record_ends(
        data in text(), bom: bool, step in 1usize..20, block_bytes in 1usize..40, eager: bool,
        format in prop::sample::select(vec![RowFormat::CSV, RowFormat::JsonLines]),
    ) {
        prop_assume!(!data.starts_with(b"\xff"));
        let start = if bom { BOM.len() } else { 0 };
        let stream = [if bom { BOM } else { b"" }, &data[..]].concat();
        let ends = record_ends(&data, format);
        let (mut offset, mut line) = (0usize, 1u64);
        let blocks = blocks(&stream, format, step, ReadOptions { block_bytes, eager });
        for (index, block) in blocks.iter().enumerate() {
            prop_assert!(!block.bytes().is_empty());
            prop_assert_eq!(block.index, index as u64);
            prop_assert_eq!(block.offset, (start + offset) as u64);
            prop_assert_eq!(block.first_line, line);
            prop_assert_eq!(block.bytes(), &data[offset..offset + block.len]);
            offset += block.len;
            line += memchr_iter(b'\n', block.bytes()).count() as u64;
            prop_assert!(ends.contains(&offset), "{} is no record end of {:?}", offset, ends);
        }
        prop_assert_eq!(offset, data.len());
    }

    #[test]
    fn the_header_is_the_first_record_that_is_not_empty(
        data in text(), step in 1usize..20, block_bytes in 1usize..40,
    ) {
        prop_assume!(!data.starts_with(b"\xff"));
        let (mut start, mut expected, mut rest) = (0, None, data.len());
        for end in record_ends(&data, RowFormat::CSV) {
            let record = trim_line_end(&data[start..end]);
            if !record.is_empty() {
                (expected, rest) = (Some(record.to_vec()), end);
                break;
            }
            start = end;
        }
        let options = ReadOptions { block_bytes, eager: false };
        let mut reader = BlockReader::new(Trickle { data: &data, step }, RowFormat::CSV, options);
        prop_assert_eq!(reader.read_header().unwrap(), expected);
        let peeked = reader.peek().unwrap().to_vec();
        let mut block = Block::default();
        let mut rows = Vec::new();
        while reader.read_block(&mut block).unwrap() {
            prop_assert!(block.index > 0 || block.bytes() == peeked);
            rows.extend_from_slice(block.bytes());
        }
        prop_assert_eq!(rows, &data[rest..]);
    }
}

#[test]
fn quoted_line_ends_do_not_end_a_record() {
    let data = b"a,\"x\ny\"\nb,\"\"\"\n\"\nc,5\"\nd\n";
    assert_eq!(record_ends(data, RowFormat::CSV), [8, 16, 21, 23]);
    let options = ReadOptions { block_bytes: 1, eager: false };
    let blocks = blocks(data, RowFormat::CSV, 1, options);
    assert_eq!(blocks.iter().map(|block| block.first_line).collect::<Vec<_>>(), [1, 3, 5, 6]);
}

#[test]
fn empty_streams() {
    for data in [&b""[..], BOM] {
        assert!(blocks(data, RowFormat::CSV, 1, ReadOptions::default()).is_empty());
        let mut reader = BlockReader::new(data, RowFormat::CSV, ReadOptions::default());
        assert_eq!(reader.read_header().unwrap(), None);
        assert!(reader.peek().unwrap().is_empty());
    }
}

#[test]
fn utf_16_is_recognised() {
    let mut reader = BlockReader::new(&b"\xff\xfea\0"[..], RowFormat::CSV, ReadOptions::default());
    assert!(matches!(reader.read_header(), Err(ReadError::Utf16)));
}

#[test]
fn a_record_over_the_limit_is_named_by_its_line() {
    let input = b"h\n\"".chain(io::repeat(b'x'));
    let mut reader = BlockReader::new(input, RowFormat::CSV, ReadOptions::default());
    reader.read_header().unwrap();
    match reader.read_block(&mut Block::default()) {
        Err(ReadError::RecordTooLong { line: 2, quoted: true }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_eager_reader_hands_on_what_is_complete() {
    let options = ReadOptions { block_bytes: 1 << 20, eager: true };
    let mut reader =
        BlockReader::new(Trickle { data: b"a\nb\nc", step: 3 }, RowFormat::CSV, options);
    let mut block = Block::default();
    let mut seen = Vec::new();
    while reader.read_block(&mut block).unwrap() {
        seen.push(block.bytes().to_vec());
    }
    assert_eq!(seen, [&b"a\n"[..], b"b\n", b"c"]);
}

#[test]
fn buffers_go_round() {
    let data = b"0123456\n".repeat(10_000);
    let options = ReadOptions { block_bytes: 4096, eager: false };
    let mut reader = BlockReader::new(&data[..], RowFormat::CSV, options);
    let mut block = Block::default();
    let mut places = std::collections::BTreeSet::new();
    while reader.read_block(&mut block).unwrap() {
        places.insert(block.buffer.as_ptr() as usize);
    }
    assert!(places.len() <= 3, "{places:?}");
}

#[test]
fn many_readers_have_small_blocks() {
    let block_bytes = |readers| ReadOptions::shared_by(readers).block_bytes;
    assert_eq!([0, 1, 256].map(block_bytes), [BLOCK_BYTES_DEFAULT; 3]);
    assert_eq!(block_bytes(1024), 64 << 10);
    assert_eq!(block_bytes(1 << 20), BLOCK_BYTES_MIN);
}

#[test]
fn a_read_that_fails_says_where() {
    struct Fails;
    impl io::Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let input = b"\xEF\xBB\xBFh\na\nb".chain(Fails);
    let options = ReadOptions { block_bytes: 4, eager: true };
    let mut reader = BlockReader::new(input, RowFormat::CSV, options);
    reader.read_header().unwrap();
    assert!(reader.read_block(&mut Block::default()).unwrap());
    let error = reader.read_block(&mut Block::default()).unwrap_err();
    assert!(matches!(error, ReadError::Io { offset: 8, .. }), "{error}");
}

//! The wire format of protobuf: numbered fields (protobuf.dev, "Encoding").

/// A value as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// A number of variable length.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err("a protobuf message is a number".into()),
        }
    }
}

/// A text field.
pub(super) fn text(value: Wire<'_>) -> Result<&str, String> {
    std::str::from_utf8(value.bytes()?).map_err(|_| "a protobuf text is not UTF-8".into())
}

/// A number; negative ones are written as their two's complement.
pub(super) fn number(value: Wire<'_>) -> Result<i64, String> {
    match value {
        Wire::Number(number) => Ok(number.cast_signed()),
        Wire::Bytes(_) => Err("a protobuf number is not a number".into()),
    }
}

/// The fields of a message, in the order in which they were written.
pub(super) fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, String> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| too_short())?;
                let (value, rest) = bytes.split_at_checked(length).ok_or_else(too_short)?;
                bytes = rest;
                Wire::Bytes(value)
            }
            other => return Err(format!("protobuf wire type {other} is not read here")),
        };
        fields.push((tag >> 3, value));
    }
    Ok(fields)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(too_short)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a protobuf number is too long".into())
}

fn too_short() -> String {
    "the protobuf is cut short".into()
}

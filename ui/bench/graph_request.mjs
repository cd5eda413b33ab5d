// Protobuf of a GraphRequest with a profile type, a selector and a range, which is all that the bench of the server needs.

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  return Buffer.from([...bytes, Number(rest)]);
}

function bytesField(number, content) {
  return Buffer.concat([varint((number << 3) | 2), varint(content.length), content]);
}

export function encodeGraphRequest({ profileType, selector }, start, end) {
  const query = Buffer.concat([
    bytesField(1, Buffer.from(profileType)),
    bytesField(2, Buffer.from(selector)),
    varint(3 << 3),
    varint(start),
    varint(4 << 3),
    varint(end),
  ]);
  return bytesField(1, query);
}

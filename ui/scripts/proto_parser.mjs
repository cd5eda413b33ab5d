// Parser for the part of proto3 that the API uses: messages, enums, oneofs, maps and services.

const TOKEN_PATTERN = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|\d+|[{}[\]()<>=;,]/g;

class TokenReader {
  constructor(source, file) {
    this.file = file;
    this.tokens = (source.match(TOKEN_PATTERN) ?? []).filter((token) => !/^\/[/*]/.test(token));
    this.position = 0;
  }
  peek() {
    return this.tokens[this.position];
  }
  next() {
    const token = this.tokens[this.position++];
    if (token === undefined) throw new Error(`${this.file}: unexpected end of file`);
    return token;
  }
  expect(wanted) {
    const token = this.next();
    if (token !== wanted) throw new Error(`${this.file}: expected ${wanted}, found ${token}`);
  }
  skipPast(wanted) {
    while (this.next() !== wanted);
  }
}

/** Returns the package, messages, enums and services of one file. */
export function parseProto(source, file) {
  const reader = new TokenReader(source, file);
  const result = { package: "", messages: [], enums: [], services: [] };
  while (reader.peek() !== undefined) {
    const word = reader.next();
    if (word === "package") {
      result.package = reader.next();
      reader.expect(";");
    } else if (word === "syntax" || word === "import" || word === "option") reader.skipPast(";");
    else if (word === "message") result.messages.push(parseMessage(reader));
    else if (word === "enum") result.enums.push(parseEnum(reader));
    else if (word === "service") result.services.push(parseService(reader));
    else throw new Error(`${file}: unexpected ${word}`);
  }
  return result;
}

function parseMessage(reader) {
  const message = { name: reader.next(), fields: [] };
  reader.expect("{");
  parseFields(reader, message.fields);
  return message;
}

function parseFields(reader, fields) {
  for (;;) {
    const word = reader.next();
    if (word === "}") return;
    if (word === "oneof") {
      reader.next();
      reader.expect("{");
      parseFields(reader, fields);
    } else if (word === "reserved" || word === "option") reader.skipPast(";");
    else fields.push(parseField(reader, word));
  }
}

function parseField(reader, firstWord) {
  const isLabel = firstWord === "repeated" || firstWord === "optional";
  const type = isLabel ? reader.next() : firstWord;
  if (type === "message" || type === "enum" || type === "map") {
    throw new Error(`${reader.file}: ${type} within a message is not supported`);
  }
  const name = reader.next();
  reader.expect("=");
  const number = Number(reader.next());
  reader.skipPast(";");
  return { name, type, number, repeated: firstWord === "repeated" };
}

function parseEnum(reader) {
  const parsed = { name: reader.next(), values: [] };
  reader.expect("{");
  for (let word = reader.next(); word !== "}"; word = reader.next()) {
    if (word === "option" || word === "reserved") {
      reader.skipPast(";");
      continue;
    }
    reader.expect("=");
    parsed.values.push({ name: word, number: Number(reader.next()) });
    reader.skipPast(";");
  }
  return parsed;
}

function parseService(reader) {
  const service = { name: reader.next(), methods: [] };
  reader.expect("{");
  for (let word = reader.next(); word !== "}"; word = reader.next()) {
    if (word !== "rpc") throw new Error(`${reader.file}: expected rpc, found ${word}`);
    const name = reader.next();
    const request = parseMethodType(reader);
    reader.expect("returns");
    const response = parseMethodType(reader);
    if (reader.next() === "{") reader.expect("}");
    if (reader.peek() === ";") reader.next();
    service.methods.push({ name, request, response });
  }
  return service;
}

function parseMethodType(reader) {
  reader.expect("(");
  const word = reader.next();
  const type = word === "stream" ? reader.next() : word;
  reader.expect(")");
  return type;
}

// Tests of encoded requests.
import { expect, test } from "vitest";
import { encodeMessage, MAX_MESSAGE_BYTES } from "./protobuf";

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

test("graph request has the bytes of protobuf", () => {
  const request = {
    query: {
      profileType: "a",
      selector: "{}",
      start: "1",
      end: "300",
      transforms: [{ focus: { name: "f" } }, { collapseRecursion: {} }],
    },
    path: ["m", ""],
    maxNodes: "-1",
    maxOtherPpm: 0,
    invert: true,
    groupBy: "GRAPH_GROUP_BY_FILE",
  };
  expect(hex(encodeMessage("GraphRequest", request))).toBe(
    "0a17" + // query
      "0a0161" + // profile type
      "12027b7d" + // selector
      "1801" + // start
      "20ac02" + // end
      "4a050a030a0166" + // focus
      "4a023200" + // collapse_recursion
      "12016d" +
      "1200" + // path
      "20ffffffffffffffffff01" + // max_nodes
      "2800" + // max_other_ppm, which is optional and thus sent
      "3001" + // invert
      "3802", // group_by
  );
});

test("text is encoded as UTF-8", () => {
  expect(hex(encodeMessage("FrameMatch", { regex: "ü😀" }))).toBe("1206c3bcf09f9880");
});

test("values beyond their field are rejected", () => {
  expect(() => encodeMessage("GraphRequest", { skip: 2 ** 32 })).toThrow(RangeError);
  expect(() => encodeMessage("GraphRequest", { skip: -1 })).toThrow(RangeError);
  expect(() => encodeMessage("GraphRequest", { maxNodes: "9223372036854775808" })).toThrow(RangeError);
  expect(() => encodeMessage("GraphRequest", { groupBy: "GRAPH_GROUP_BY_PLANET" })).toThrow(RangeError);
  expect(() => encodeMessage("GraphRequest", { path: ["x".repeat(MAX_MESSAGE_BYTES)] })).toThrow(RangeError);
  expect(() => encodeMessage("Unknown", {})).toThrow(RangeError);
});
